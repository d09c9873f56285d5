//! KAITO's `InferenceSet` controller, which creates the requested number of Workspaces with generated names.

use serde_json::{Value, json};

use super::kaito::{CREATED_BY, WORKSPACE};
use super::recording_client::name;
use super::workload::{controlled_by, is_of};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const INFERENCE_SET: Kind = Kind::new("kaito.sh", "v1beta1", "InferenceSet", "inferencesets");

/// KAITO's `InferenceSet` controller. Their Workspaces are reconciled by [`Kaito`](super::kaito::Kaito).
pub struct InferenceSets;

/// An `InferenceSet`.
#[must_use]
pub fn inference_set(name: &str, preset: &str, replicas: i64) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "labelSelector": {"matchLabels": {"apps": name}},
            "template": {
                "resource": {"instanceType": "gpu"},
                "inference": {"preset": {"name": preset}},
            },
        },
    })
}

impl Reconciler for InferenceSets {
    fn manager(&self) -> &'static str {
        "kaito-inferenceset"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![INFERENCE_SET, WORKSPACE]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for set in client.list(INFERENCE_SET).await? {
            let mut made = client.list(WORKSPACE).await?;
            made.retain(|it| is_of(it, &set));
            let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            for _ in made.len()..wanted {
                client.create(WORKSPACE, &workspace_of(&set)).await?;
            }
            for surplus in made.iter().skip(wanted) {
                client.delete(WORKSPACE, surplus).await?;
            }
            let status = json!({
                "replicas": wanted, "selector": format!("{CREATED_BY}={}", name(&set)),
            });
            client.status(INFERENCE_SET, &set, &status).await?;
        }
        Ok(())
    }
}

fn workspace_of(set: &Value) -> Value {
    let (its_name, template) = (name(set), &set["spec"]["template"]);
    let mut resource = template["resource"].clone();
    resource["count"] = json!(1);
    resource["labelSelector"] = set["spec"]["labelSelector"].clone();
    json!({
        "metadata": {
            "generateName": format!("{its_name}-"), "labels": {CREATED_BY: its_name},
            "ownerReferences": controlled_by(INFERENCE_SET, set),
        },
        "resource": resource,
        "inference": template["inference"],
    })
}
