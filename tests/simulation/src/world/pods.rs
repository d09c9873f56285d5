//! The kubelet, and the containers of pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::status_writer;
use super::workloads::is_ready;
use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources;
use crate::api_server::store::Store;
use crate::broker::{Broker, sqs};
use crate::clock;
use crate::randomness::{Seed, delay};

/// Makes pods ready a while after their creation, and removes deleted ones. Returns when the next one is due.
pub fn step(store: &mut Store, seed: Seed) -> Option<Duration> {
    let pods: Vec<(Id, Arc<Object>)> = store
        .all(&resources::PODS)
        .map(|(id, it)| (id.clone(), Arc::clone(it)))
        .collect();
    let mut next = None;
    for (id, pod) in pods {
        let metadata = &pod["metadata"];
        let is_ending = metadata["deletionTimestamp"].is_string();
        let since = if is_ending {
            "deletionTimestamp"
        } else {
            "creationTimestamp"
        };
        let since: Option<Timestamp> = metadata[since].as_str().and_then(|time| time.parse().ok());
        let mut random =
            seed.rng_for(("pod", &id.name, since.map(Timestamp::as_second), is_ending));
        let due = since.unwrap_or_default() + delay(&mut random, 500..4_000);
        let wait = due.duration_since(clock::now());
        let is_due = wait.is_zero() || wait.is_negative();
        if is_ending && is_due {
            store.remove(&id, &pod);
        } else if !is_ending && is_due && !is_ready(&pod) {
            make_ready(store, &id, &pod);
        } else if !is_due {
            let wait = wait.unsigned_abs();
            next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
        }
    }
    next
}

fn make_ready(store: &mut Store, id: &Id, pod: &Value) {
    let containers = pod["spec"]["containers"].as_array();
    let statuses = containers.into_iter().flatten().map(|container| {
        json!({"name": container["name"], "ready": true, "state": {"running": {"startedAt": clock::now_text()}}})
    });
    let mut pod = pod.clone();
    pod["status"] = json!({
        "phase": "Running",
        "conditions": [
            {"type": "PodReadyToStartContainers", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
        "containerStatuses": statuses.collect::<Vec<_>>(),
    });
    let _ = store.update(id, pod, &status_writer("kubelet"));
}

/// Broker and queue from which a pod receives, according to its sidecar's environment.
#[must_use]
pub fn queue_of(pod: &Value) -> Option<(String, String)> {
    let containers = pod["spec"]["containers"].as_array()?;
    let sidecar = containers.iter().find(|it| it["name"] == "asya-sidecar")?;
    let variable = |name: &str| {
        let mut all = sidecar["env"].as_array().into_iter().flatten();
        all.find(|it| it["name"] == name)
            .and_then(|it| it["value"].as_str())
    };
    let actor = variable("ASYA_ACTOR_NAME")?;
    let rabbitmq = variable("ASYA_RABBITMQ_HOST").map(str::to_owned);
    let host = rabbitmq.or_else(|| {
        let mut all = sidecar["env"].as_array()?.iter();
        let key = all.find(|it| it["name"] == "AWS_ACCESS_KEY_ID")?;
        let secret = key["valueFrom"]["secretKeyRef"]["name"].as_str()?;
        Some(sqs::transport(variable("ASYA_AWS_REGION")?, secret))
    })?;
    Some((host, format!("asya-{actor}")))
}

/// Ready pods consume the messages of their queues.
pub fn consume(store: &Store, brokers: &mut BTreeMap<String, Broker>) {
    for (_, pod) in store.all(&resources::PODS).filter(|(_, pod)| is_ready(pod)) {
        if let Some((host, queue)) = queue_of(pod)
            && let Some(broker) = brokers.get_mut(&host)
        {
            broker.consume(&queue);
        }
    }
}
