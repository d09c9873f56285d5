//! Seldon Core 2's Server controller (SIM-5). Unlike Seldon Core 1's, it always sets replicas.

use serde_json::{Value, json};

use super::last_applied::keep;
use super::recording_client::name;
use super::workload::controlled_by;
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const SERVER: Kind = Kind::new("mlops.seldon.io", "v1alpha1", "Server", "servers");
const LAST_APPLIED: &str = "banzaicloud.com/last-applied";

/// Seldon Core 2's controller (SIM-5).
pub struct Seldon2;

/// A Server.
#[must_use]
pub fn server(name: &str, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"serverConfig": "mlserver", "replicas": 1, "podSpec": {"containers": [
            {"name": "mlserver", "image": image, "ports": [{"containerPort": 9000}]},
        ]}},
    })
}

impl Reconciler for Seldon2 {
    fn manager(&self) -> &'static str {
        "seldon-v2-controller-manager"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![SERVER, Kind::STATEFUL_SET]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for server in client.list(SERVER).await? {
            let wanted = wanted(&server);
            keep(client, Kind::STATEFUL_SET, LAST_APPLIED, &wanted).await?;
            let selector = format!("seldon-server-name={}", name(&server));
            let status = json!({"replicas": wanted["spec"]["replicas"], "selector": selector});
            client.status(SERVER, &server, &status).await?;
        }
        Ok(())
    }
}

fn wanted(server: &Value) -> Value {
    let labels = json!({"seldon-server-name": name(server)});
    let spec = &server["spec"];
    json!({
        "metadata": {
            "name": name(server), "labels": labels,
            "ownerReferences": controlled_by(SERVER, server),
        },
        "spec": {
            "replicas": spec.get("replicas").cloned().unwrap_or(json!(1)),
            "serviceName": name(server),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec["podSpec"]},
        },
    })
}
