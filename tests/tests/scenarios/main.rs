//! Scenarios on a real cluster. Most share the one that `asya-cluster run` starts, each in its own namespace; a
//! scenario that breaks its cluster starts its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::own_cluster;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

mod admission;
mod admission_rules;
mod attempts;
mod bad_objects;
mod binding;
mod caches;
mod certificates;
mod cli;
mod clusters;
mod compat;
mod config_errors;
mod crash;
mod crd;
mod dead_letters;
mod deletion;
mod drained;
mod events;
mod examples;
mod former;
mod harness_selftest;
mod health;
mod image;
mod impersonation;
mod installs;
mod keda;
mod leader;
mod lifecycle;
mod messages;
mod migration;
mod namespaces;
mod operations;
mod own_hpa;
mod owners;
mod ownership;
mod paused;
mod pod_process;
mod reclaim;
mod replica_contention;
mod restart;
mod restore;
mod retired;
mod rights;
mod scaled_targets;
mod scaling;
mod signals;
mod simulated_api_server;
mod sqs;
mod standalone;
mod states;
mod steady;
mod targets;
mod unmanaged;
mod unresponsive_broker;
mod upgrade;
mod workloads;

/// A minimal valid actor.
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

/// The API for the kind of `object` in the scenario's namespace.
fn api(scenario: &Scenario, object: &Value) -> Api<DynamicObject> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .rsplit_once('/')
        .unwrap_or(("", text("apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
    Api::namespaced_with(scenario.client(), scenario.namespace(), &resource)
}

/// Waits until these actors are Running with their latest spec.
async fn all_running(scenario: &Scenario, names: &[String]) -> Result<()> {
    all_running_within(scenario, names, Duration::from_mins(1)).await
}

async fn all_running_within(scenario: &Scenario, names: &[String], limit: Duration) -> Result<()> {
    let what = format!("{} actors are Running", names.len());
    eventually(what, limit, async || {
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let waiting: Vec<_> = names
            .iter()
            .filter(|name| {
                !actors.iter().any(|actor| {
                    let (metadata, status) = (&actor.metadata, &actor.data["status"]);
                    metadata.name.as_ref() == Some(name)
                        && status["status"] == "Running"
                        && status["observedGeneration"].as_i64() == metadata.generation
                })
            })
            .collect();
        check(waiting.is_empty(), format_args!("not Running: {waiting:?}"))
    })
    .await
}

/// A scenario's own cluster with both brokers and KEDA, like those of the Go operator's users.
async fn cluster_with_all() -> RunningCluster {
    let options = Options {
        own_rabbitmq: true,
        sqs: true,
        keda: true,
        ..Options::default()
    };
    RunningCluster::start(options).await.unwrap()
}
