//! Scenarios on a real cluster. Most share the one that `asya-cluster run`
//! starts, each in a namespace of its own; one that breaks its cluster starts
//! its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

mod bad_objects;
mod crash;
mod crd;
mod harness;
mod keda;
mod leader;
mod lifecycle;
mod namespaces;
mod operations;
mod ownership;
mod sqs;
mod standalone;
mod workloads;

/// The least that an actor needs.
fn minimal_actor(name: &str) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": name},
        "spec": {
            "transport": "rabbitmq",
            "workload": {"template": {"spec": {"containers": [{
                "name": "asya-runtime",
                "image": "python:3.13-slim",
                "env": [{"name": "ASYA_HANDLER", "value": "echo.handle"}],
            }]}}},
        },
    })
}

/// The turn to run a cluster of one's own: more than one at a time besides the
/// shared one would slow everything down.
async fn own_cluster() -> tokio::sync::MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    TURN.lock().await
}
