//! Yatai's `BentoDeployment` controller (SIM-5).

use serde_json::{Value, json};

use super::last_applied::keep;
use super::recording_client::name;
use super::workload::{autoscaler, controlled_by, put_all, without};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const BENTO_DEPLOYMENT: Kind = Kind::new(
    "serving.yatai.ai",
    "v2alpha1",
    "BentoDeployment",
    "bentodeployments",
);
const LAST_APPLIED: &str = "yatai.ai/last-applied";

/// Yatai's controller (SIM-5).
pub struct Yatai;

/// A `BentoDeployment`.
#[must_use]
pub fn bento_deployment(name: &str, bento: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"bento": bento, "autoscaling": {"minReplicas": 1, "maxReplicas": 4}},
    })
}

impl Reconciler for Yatai {
    fn manager(&self) -> &'static str {
        "yatai-deployment"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![BENTO_DEPLOYMENT, Kind::DEPLOYMENT, Kind::HPA]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for bento in client.list(BENTO_DEPLOYMENT).await? {
            keep(client, Kind::DEPLOYMENT, LAST_APPLIED, &wanted(&bento)).await?;
            // Always creates an HPA, whatever the user specifies.
            let hpa = &bento["spec"]["autoscaling"];
            autoscaler(client, (BENTO_DEPLOYMENT, &bento), name(&bento), hpa).await?;
        }
        Ok(())
    }
}

fn wanted(bento: &Value) -> Value {
    let own = json!({"yatai.ai/selector": name(bento), "yatai.ai/bento": bento["spec"]["bento"]});
    let selector = json!({"yatai.ai/selector": name(bento)});
    let more = &bento["spec"]["extraPodMetadata"];
    let mut labels = more["labels"].clone();
    put_all(&mut labels, &without(&own, |_| false));
    let container = json!({
        "name": "main", "image": format!("bento:{}", bento["spec"]["bento"].as_str().unwrap_or_default()),
        "ports": [{"containerPort": 3000}],
    });
    let mut template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let annotations = without(&more["annotations"], |_| false);
    if !annotations.is_empty() {
        put_all(&mut template["metadata"]["annotations"], &annotations);
    }
    json!({
        "metadata": {
            "name": name(bento), "labels": own,
            "ownerReferences": controlled_by(BENTO_DEPLOYMENT, bento),
        },
        "spec": {"selector": {"matchLabels": selector}, "template": template},
    })
}
