//! KAITO's `Workspace` controller (SIM-3).
//!
//! While the `StatefulSet` has the current revision, it writes nothing. A new revision overwrites KAITO's fields of the
//! first container, all init containers and all volumes. A requested base image replaces template and replicas.

use serde_json::{Value, json};

use super::recording_client::name;
use super::workload::{annotation, controlled_by, hash, label};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const WORKSPACE: Kind = Kind::new("kaito.sh", "v1beta1", "Workspace", "workspaces");
/// On the `StatefulSet`: the revision of its Workspace.
pub const REVISION: &str = "workspace.kaito.io/revision";
/// On a Workspace: the requested base image of its pods.
pub const UPGRADE: &str = "kaito.sh/upgrade-to-version";
/// On a Workspace and its pods: the `InferenceSet` that created it.
pub const CREATED_BY: &str = "inferenceset.kaito.sh/created-by";
/// On the `StatefulSet`: the base image of its pods.
const BASE_IMAGE: &str = "kaito.sh/base-image-version";

/// KAITO's `Workspace` controller (SIM-3).
pub struct Kaito;

/// A Workspace, whose fields are at the top level instead of in `spec`.
#[must_use]
pub fn workspace(name: &str, preset: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "resource": {"count": 1, "instanceType": "gpu", "labelSelector": {"matchLabels": {"apps": name}}},
        "inference": {"preset": {"name": preset}},
    })
}

impl Reconciler for Kaito {
    fn manager(&self) -> &'static str {
        "kaito-workspace"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![WORKSPACE, Kind::STATEFUL_SET]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for workspace in client.list(WORKSPACE).await? {
            stateful_set(client, &workspace).await?;
            let status = json!({"targetNodeCount": nodes(&workspace)});
            client.status(WORKSPACE, &workspace, &status).await?;
        }
        Ok(())
    }
}

async fn stateful_set(client: &RecordingClient, workspace: &Value) -> Result<()> {
    let wanted = wanted(workspace);
    let Some(live) = client.get(Kind::STATEFUL_SET, name(&wanted)).await? else {
        client.create(Kind::STATEFUL_SET, &wanted).await?;
        return Ok(());
    };
    let mut next = live.clone();
    for key in [BASE_IMAGE, REVISION] {
        next["metadata"]["annotations"][key] = wanted["metadata"]["annotations"][key].clone();
    }
    if annotation(&live, BASE_IMAGE) != annotation(&wanted, BASE_IMAGE) {
        for key in ["template", "replicas"] {
            next["spec"][key] = wanted["spec"][key].clone();
        }
    } else if annotation(&live, REVISION) == annotation(&wanted, REVISION) {
        return Ok(());
    } else {
        let (pod, own) = (
            &mut next["spec"]["template"]["spec"],
            &wanted["spec"]["template"]["spec"],
        );
        for key in ["env", "volumeMounts"] {
            pod["containers"][0][key] = own["containers"][0][key].clone();
        }
        for key in ["initContainers", "volumes"] {
            pod[key] = own[key].clone();
        }
    }
    client.put(Kind::STATEFUL_SET, &next).await.map(drop)
}

fn nodes(workspace: &Value) -> Value {
    let count = workspace["resource"].get("count").cloned();
    count.unwrap_or(json!(1))
}

fn wanted(workspace: &Value) -> Value {
    let its_name = name(workspace);
    let selector = json!({"kaito.sh/workspace": its_name});
    let mut labels = selector.clone();
    if let Some(set) = label(workspace, CREATED_BY) {
        labels[CREATED_BY] = json!(set);
    }
    let revision = hash(&json!([workspace["resource"], workspace["inference"]]));
    let base = label(workspace, UPGRADE).unwrap_or("first");
    let preset = &workspace["inference"]["preset"]["name"];
    let container = json!({
        "name": its_name, "image": format!("kaito-base:{base}"),
        "ports": [{"containerPort": 5000}],
        "env": [{"name": "MODEL", "value": preset}],
        "volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}],
    });
    json!({
        "metadata": {
            "name": its_name, "labels": labels,
            "annotations": {REVISION: revision, BASE_IMAGE: base},
            "ownerReferences": controlled_by(WORKSPACE, workspace),
        },
        "spec": {
            "replicas": nodes(workspace),
            "serviceName": format!("{its_name}-headless"),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    })
}
