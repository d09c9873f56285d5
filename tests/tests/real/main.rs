//! Scenarios on real pods: a real kubelet runs the operator, handlers and models, and messages travel end to end. They
//! need the cluster of `asya-cluster run --real`, which runs in a sandbox of Linux namespaces (`make test-real`).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod binding;
mod broker;
mod concurrency;
mod operations;
mod pages;
mod producer;
mod release;
mod restarts;
mod restricted;
mod scaling;
mod shutdown;
mod standalone;
mod states;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::real::PYTHON_IMAGE;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use broker::Broker;

/// Images are preloaded, so a pod starts within seconds; the margin is for a busy machine.
const SOON: Duration = Duration::from_mins(2);

/// An actor on this broker whose pods run a handler from `pods/handlers.py`.
fn actor(name: &str, broker: Broker, handler: &str) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": name},
        "spec": {
            "transport": broker.transport(),
            "sidecar": {"resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}},
            "workload": {"template": {"spec": {
                "terminationGracePeriodSeconds": 10,
                "containers": [{
                    "name": "asya-runtime",
                    "image": PYTHON_IMAGE,
                    "env": [{"name": "ASYA_HANDLER", "value": handler}],
                }],
            }}},
        },
    })
}

/// An actor without pods: its queue keeps every message.
fn actor_without_pods(name: &str, broker: Broker) -> Value {
    let mut actor = actor(name, broker, "handlers.shout");
    actor["spec"]["workload"]["replicas"] = json!(0);
    actor
}

/// A message for an actor, whose result is routed to `next`.
fn message(id: &str, actor: &str, next: &str, payload: &Value) -> String {
    json!({"id": id, "route": {"actors": [actor, next], "current": 0}, "payload": payload})
        .to_string()
}

/// Applies actors and waits until they are Running.
async fn run(scenario: &Scenario, actors: &[Value]) -> Result<()> {
    scenario.apply_all(actors).await?;
    for actor in actors {
        let name = actor["metadata"]["name"].as_str().unwrap_or_default();
        scenario.actor_status(name, "Running", SOON).await?;
    }
    Ok(())
}
