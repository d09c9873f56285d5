//! Users' workloads, to which actors bind.

use asya_owners::kserve::AUTOSCALER_CLASS;
use serde_json::{Map, Value, json};

use super::World;
use super::admission::Review;
use super::owners::OwnerKind;
use super::owners::kind::{is_bindable, wanted_pods};
use super::workloads::is_ready;
use crate::api_server::id::Id;
use crate::api_server::request::Verb;
use crate::api_server::resources::{self, Resource};
use crate::api_server::status::Failure;
use crate::api_server::store::{Store, owners};
use crate::process::Process;

/// Label of workloads to which actors bind.
pub const TARGET: &str = "example.com/target";

/// The annotation with which the operator rolls pods.
const ROLL: &str = "asya.sh/roll";

/// Kinds of targets, by how their pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A `Deployment` with rolling updates.
    Deployment,
    /// A `Deployment` with strategy `Recreate`.
    Recreate,
    /// A `StatefulSet` with rolling updates.
    StatefulSet,
    /// A `StatefulSet` whose pods are deleted by its user.
    OnDelete,
    /// Reconciled by this owner.
    Owned(OwnerKind),
}

impl TargetKind {
    /// The resource.
    #[must_use]
    pub fn resource(self) -> &'static Resource {
        match self {
            Self::Deployment | Self::Recreate => &resources::DEPLOYMENTS,
            Self::StatefulSet | Self::OnDelete => &resources::STATEFUL_SETS,
            Self::Owned(owner) => owner.target(),
        }
    }

    /// A workload with this name, number of pods and model version.
    #[must_use]
    pub fn object(self, name: &str, replicas: u8, version: u8) -> Value {
        if let Self::Owned(owner) = self {
            return owner.object(name, replicas, version);
        }
        let labels = json!({"app": name});
        let container = json!({
            "name": "model", "image": format!("model:{version}"), "ports": [{"containerPort": 8000}],
            "resources": {"requests": {"cpu": "100m"}},
        });
        let mut object = json!({
            "metadata": {"labels": {TARGET: "true"}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "restartPolicy": "Always"},
                },
            },
        });
        let (field, strategy) = match self {
            Self::Deployment | Self::Owned(_) => ("strategy", "RollingUpdate"),
            Self::Recreate => ("strategy", "Recreate"),
            Self::StatefulSet => ("updateStrategy", "RollingUpdate"),
            Self::OnDelete => ("updateStrategy", "OnDelete"),
        };
        object["spec"][field]["type"] = strategy.into();
        object
    }
}

/// The resources of a container that requests this much cpu, in thousandths, and memory, in Mi.
#[must_use]
pub fn requests(cpu: u16, memory: u16) -> Value {
    json!({"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}})
}

/// Name of an actor's target.
#[must_use]
pub fn target_name(actor: &str) -> String {
    format!("model-{actor}")
}

/// Whether an object is a target, or was created from one by an owner. Its pods, which may have the same label, are
/// not.
#[must_use]
pub fn is_target(object: &Value) -> bool {
    let is_owned = || owners(object).any(|it| it["kind"] == "Workspace");
    object["kind"] != "Pod" && (object["metadata"]["labels"][TARGET] == "true" || is_owned())
}

/// An object without what the operator may write into it, and without fields that change with every write.
#[must_use]
pub fn without_ours(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    strip(&object)
}

fn strip(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(key, value)| !key.starts_with("asya.sh/") && !is_handoff(key, value));
            let fields = fields.map(|(key, value)| (key.clone(), strip(value)));
            Value::Object(
                fields
                    .filter(|(_, it)| !is_empty(it))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => {
            let is_ours = |item: &&Value| {
                let name = item["name"].as_str();
                name.is_some_and(|name| name.starts_with("asya-"))
            };
            items.iter().filter(|it| !is_ours(it)).map(strip).collect()
        }
        _ => value.clone(),
    }
}

/// No user sets this autoscaler class (SO-5).
fn is_handoff(key: &str, value: &Value) -> bool {
    key == AUTOSCALER_CLASS && value == "external"
}

/// Annotations without those that stay with the sidecars: KServe would restart the pods if one were removed (BIND-43).
#[must_use]
pub fn without_kept(annotations: &Value) -> Value {
    let all = annotations.as_object().into_iter().flatten();
    let others = all.filter(|(key, value)| *key != ROLL && !is_handoff(key, value));
    others
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Whether the operator has left anything in an object.
#[must_use]
pub fn has_ours(object: &Value) -> bool {
    // Also in JSON within an annotation.
    let is_ours = |text: &str| {
        text.starts_with("asya-") || text.contains("asya.sh/") || text.contains("\"asya-")
    };
    match object {
        Value::String(text) => is_ours(text),
        Value::Array(items) => items.iter().any(has_ours),
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            // This repeats the names of fields that another manager still owns.
            key != "managedFields" && (is_ours(key) || is_handoff(key, value) || has_ours(value))
        }),
        _ => false,
    }
}

/// A pod, or a template of pods, without what the operator adds.
#[must_use]
pub fn without_sidecar(template: &Value) -> Value {
    let mut pod = template.clone();
    for list in ["containers", "initContainers"] {
        if let Some(containers) = pod["spec"][list].as_array_mut() {
            let is_ours = |name: &str| name.starts_with("asya-");
            containers.retain(|it| !it["name"].as_str().is_some_and(is_ours));
        }
    }
    pod
}

impl World {
    /// Reviews an object that a call creates; mutating webhooks change it.
    ///
    /// # Errors
    /// If a webhook denies it, or a quota rejects it.
    pub fn admit_created(
        &self,
        store: &Store,
        verb: &mut Verb,
        dry_run: bool,
    ) -> Result<(), Failure> {
        let Verb::Create(id, object, _) = verb else {
            return Ok(());
        };
        if id.resource != &resources::PODS && id.resource != &resources::ACTORS {
            return Ok(());
        }
        let review = Review {
            id,
            operation: "CREATE",
            old: None,
            dry_run,
        };
        self.admit(store, &review, object)
    }

    /// A ready pod is evicted only while all other pods of its workload exist and are ready (SAFE-11).
    pub fn check_disruption(&self, process: &Process, verb: &Verb) {
        let Verb::Evict(id, _) = verb else { return };
        self.check_unchanged_since_read(process, &format!("evicts {id} "), |objects| {
            let is_serving =
                |pod: &Value| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null();
            let pod = objects.get(id).filter(|pod| is_serving(pod))?;
            let uid = &owners(pod).next()?["uid"];
            let mut all = objects.everything().map(|(_, object)| object);
            let workload = all.find(|it| it["metadata"]["uid"] == *uid)?;
            let pods = objects.all(&resources::PODS).map(|(_, pod)| pod);
            let own = pods
                .filter(|pod| is_bindable(pod) && owners(pod).any(|owner| owner["uid"] == *uid));
            let serving = own.filter(|pod| is_serving(pod)).count() as u64;
            let wanted = wanted_pods(workload);
            (serving < wanted).then(|| format!("while {serving} of {wanted} pods are ready"))
        });
    }

    /// The operator changes only its own fields of a target.
    pub fn check_target(&self, process: &Process, id: &Id, (before, after): (&Value, &Value)) {
        let (mut before, after) = (without_ours(before), without_ours(after));
        if before["spec"]["replicas"] == 0 {
            // It may scale up a target from 0 that no autoscaler scales any more.
            before["spec"]["replicas"] = after["spec"]["replicas"].clone();
        }
        if before != after {
            let name = &process.name;
            self.violation(format!(
                "{name} changes {id}, which is its user's: {before} became {after}"
            ));
        }
    }
}
