//! Problems of objects: one object is changed or deleted, and restored afterwards.

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::cli::MINUTE;

/// Changes an object; `None` deletes it.
type Edit = Option<Box<dyn Fn(&mut Value)>>;

/// A problem of one object.
pub struct Problem {
    pub what: &'static str,
    /// `kind/name`
    pub object: &'static str,
    pub edit: Edit,
    /// What `check` finds in addition to what it finds anyway.
    pub ids: &'static [&'static str],
    /// The beginning of the fix of the first finding.
    pub fix: &'static str,
}

pub fn changed(
    what: &'static str,
    object: &'static str,
    edit: impl Fn(&mut Value) + 'static,
    ids: &'static [&'static str],
    fix: &'static str,
) -> Problem {
    Problem {
        what,
        object,
        edit: Some(Box::new(edit)),
        ids,
        fix,
    }
}

pub fn deleted(
    what: &'static str,
    object: &'static str,
    ids: &'static [&'static str],
    fix: &'static str,
) -> Problem {
    Problem {
        what,
        object,
        edit: None,
        ids,
        fix,
    }
}

/// The original object, to be restored.
pub struct Before {
    object: String,
    value: Value,
}

impl Before {
    /// Changes an object in the operator's namespace, or a cluster-scoped one.
    pub async fn edit(scenario: &Scenario, object: &str, edit: &Edit) -> Result<Self> {
        let value = match edit {
            None => {
                let value = read(scenario, object).await?;
                kubectl(scenario, &["delete", object]).await?;
                value
            }
            // A controller may write the object between our read and our write, which the API server then rejects.
            Some(edit) => {
                eventually("the object is changed", MINUTE, async || {
                    let value = read(scenario, object).await.map_err(NotYet::new)?;
                    let mut changed = value.clone();
                    edit(&mut changed);
                    let written = write(scenario, "replace", &changed).await;
                    written.map_err(NotYet::new)?;
                    Ok(value)
                })
                .await?
            }
        };
        Ok(Self {
            object: object.to_owned(),
            value,
        })
    }

    /// Restores the object.
    pub async fn restore(self, scenario: &Scenario) -> Result<()> {
        let mut value = self.value;
        let metadata = &mut value["metadata"];
        if read(scenario, &self.object).await.is_err() {
            for field in ["resourceVersion", "uid", "creationTimestamp"] {
                metadata[field] = Value::Null;
            }
            return write(scenario, "create", &value).await;
        }
        eventually("the object is put back", MINUTE, async || {
            let found = read(scenario, &self.object).await.map_err(NotYet::new)?;
            let mut value = value.clone();
            value["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
            let written = write(scenario, "replace", &value).await;
            written.map_err(NotYet::new)
        })
        .await
    }
}

async fn kubectl(scenario: &Scenario, args: &[&str]) -> Result<String> {
    let args = [&["--namespace", "asya-system"], args].concat();
    scenario.cluster().kubectl(&args).await
}

async fn read(scenario: &Scenario, object: &str) -> Result<Value> {
    let text = kubectl(scenario, &["get", object, "--output=json"]).await?;
    Ok(serde_json::from_str(&text)?)
}

async fn write(scenario: &Scenario, verb: &str, object: &Value) -> Result<()> {
    let file = scenario.cluster().folder().join("put-back.json");
    std::fs::write(&file, object.to_string()).map_err(Error::other)?;
    let file = file.display().to_string();
    kubectl(scenario, &[verb, "--filename", &file])
        .await
        .map(drop)
}

/// Prevents new pods of a Deployment from starting. `keeps`: whether a rollout leaves some of the old ones.
pub fn cannot_run(deployment: &mut Value, keeps: bool) {
    let spec = &mut deployment["spec"];
    spec["strategy"] = if keeps {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
    } else {
        json!({"type": "Recreate"})
    };
    spec["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "nowhere"});
}

/// Sets an environment variable of the first container.
pub fn set_variable(deployment: &mut Value, name: &str, value: &str) {
    let variables = &mut deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    let found = variables
        .as_array_mut()
        .and_then(|all| all.iter_mut().find(|it| it["name"] == name));
    if let Some(variable) = found {
        variable["value"] = json!(value);
    }
}

/// Sets the CA of all entries of a webhook configuration.
pub fn set_ca(configuration: &mut Value, bundle: &Value) {
    let entries = configuration["webhooks"].as_array_mut();
    for entry in entries.into_iter().flatten() {
        entry["clientConfig"]["caBundle"] = bundle.clone();
    }
}
