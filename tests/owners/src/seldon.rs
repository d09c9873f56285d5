//! Seldon Core 1's `SeldonDeployment` controller (SIM-5).

use serde_json::{Map, Value, json};

use super::last_applied::keep;
use super::recording_client::name;
use super::workload::{autoscaler, controlled_by};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const SELDON_DEPLOYMENT: Kind = Kind::new(
    "machinelearning.seldon.io",
    "v1",
    "SeldonDeployment",
    "seldondeployments",
);
const LAST_APPLIED: &str = "banzaicloud.com/last-applied";

/// Seldon Core 1's controller (SIM-5).
pub struct Seldon;

/// A `SeldonDeployment` with one predictor. `more` is merged into its component: `replicas`, or an `hpaSpec`.
#[must_use]
pub fn seldon_deployment(name: &str, more: &Value) -> Value {
    let mut component = json!({
        "spec": {"containers": [{"name": "classifier", "image": "model:1", "ports": [{"containerPort": 9000}]}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        component[key] = value.clone();
    }
    json!({
        "metadata": {"name": name},
        "spec": {"predictors": [{
            "name": "default", "graph": {"name": "classifier", "type": "MODEL"},
            "componentSpecs": [component],
        }]},
    })
}

/// The name of the Deployment of a [`seldon_deployment`].
#[must_use]
pub fn deployment_of(name: &str) -> String {
    format!("{name}-default-0-classifier")
}

impl Reconciler for Seldon {
    fn manager(&self) -> &'static str {
        "seldon-manager"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![SELDON_DEPLOYMENT, Kind::DEPLOYMENT, Kind::HPA]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for seldon in client.list(SELDON_DEPLOYMENT).await? {
            let mut told = Map::new();
            for (wanted, component) in components(&seldon) {
                keep(client, Kind::DEPLOYMENT, LAST_APPLIED, &wanted).await?;
                if let Some(hpa) = component.get("hpaSpec") {
                    autoscaler(client, (SELDON_DEPLOYMENT, &seldon), name(&wanted), hpa).await?;
                }
                told.insert(name(&wanted).to_owned(), json!({"replicas": 1}));
            }
            let status = json!({"deploymentStatus": told, "state": "Available"});
            client.status(SELDON_DEPLOYMENT, &seldon, &status).await?;
        }
        Ok(())
    }
}

/// The desired Deployment of each component, with the component.
fn components(seldon: &Value) -> Vec<(Value, &Value)> {
    let list = |value: &'_ Value, key: &str| value[key].as_array().map_or(0, Vec::len);
    let mut found = Vec::new();
    for predictor in 0..list(&seldon["spec"], "predictors") {
        let predictor = &seldon["spec"]["predictors"][predictor];
        for index in 0..list(predictor, "componentSpecs") {
            let component = &predictor["componentSpecs"][index];
            found.push((wanted(seldon, predictor, index, component), component));
        }
    }
    found
}

fn wanted(seldon: &Value, predictor: &Value, index: usize, component: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let container = text(&component["spec"]["containers"][0]["name"]);
    let deployment = format!(
        "{}-{}-{index}-{container}",
        name(seldon),
        text(&predictor["name"])
    );
    let labels = json!({"seldon-deployment-id": name(seldon), "app": deployment});
    let mut wanted = json!({
        "metadata": {
            "name": deployment, "labels": labels,
            "ownerReferences": controlled_by(SELDON_DEPLOYMENT, seldon),
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": component["spec"]},
        },
    });
    // The innermost level takes precedence.
    let levels = [component, predictor, &seldon["spec"]];
    let replicas = levels.into_iter().find_map(|it| it.get("replicas"));
    if let (Some(replicas), None) = (replicas, component.get("hpaSpec")) {
        wanted["spec"]["replicas"] = replicas.clone();
    }
    wanted
}
