//! The `LeaderWorkerSet` controller, limited to groups of one pod: the leaders are a `StatefulSet` with the set's name.

use serde_json::{Value, json};

use super::recording_client::name;
use super::workload::{controlled_by, put_all, without};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const LEADER_WORKER_SET: Kind = Kind::new(
    "leaderworkerset.x-k8s.io",
    "v1",
    "LeaderWorkerSet",
    "leaderworkersets",
);
const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// The `LeaderWorkerSet` controller, for leaders without workers.
pub struct LeaderWorkerSets;

/// A set with this number of groups of one pod each.
#[must_use]
pub fn leader_worker_set(name: &str, replicas: i64) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": 1,
                "workerTemplate": {"spec": {"containers": [
                    {"name": "model", "image": "vllm:1", "ports": [{"containerPort": 8000}]},
                ]}},
            },
        },
    })
}

impl Reconciler for LeaderWorkerSets {
    fn manager(&self) -> &'static str {
        "lws"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![LEADER_WORKER_SET, Kind::STATEFUL_SET]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for set in client.list(LEADER_WORKER_SET).await? {
            let wanted = wanted(&set);
            match client.get(Kind::STATEFUL_SET, name(&set)).await? {
                None => drop(client.create(Kind::STATEFUL_SET, &wanted).await?),
                Some(mut live) if live["spec"]["replicas"] != wanted["spec"]["replicas"] => {
                    live["spec"]["replicas"] = wanted["spec"]["replicas"].clone();
                    client.put(Kind::STATEFUL_SET, &live).await?;
                }
                Some(_) => {}
            }
            let selector = format!("{NAME}={},{WORKER}=0", name(&set));
            let status =
                json!({"replicas": wanted["spec"]["replicas"], "hpaPodSelector": selector});
            client.status(LEADER_WORKER_SET, &set, &status).await?;
        }
        Ok(())
    }
}

fn wanted(set: &Value) -> Value {
    let labels = json!({NAME: name(set), WORKER: "0"});
    let template = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    let mut of_pods = template["metadata"]["labels"].clone();
    put_all(&mut of_pods, &without(&labels, |_| false));
    json!({
        "metadata": {
            "name": name(set), "labels": labels,
            "ownerReferences": controlled_by(LEADER_WORKER_SET, set),
        },
        "spec": {
            "replicas": set["spec"]["replicas"], "serviceName": name(set),
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": of_pods}, "spec": template["spec"]},
        },
    })
}
