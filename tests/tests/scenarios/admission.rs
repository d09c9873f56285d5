//! The admission webhook as installed by the chart, called by a real API server through its Service.

mod ca_replaced;
mod deletions;
mod flood;
mod load;
mod outage;
mod pods;
mod refusals;
mod rotation;
mod stream;
mod unresponsive_webhook;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(30);
const INJECTOR: &str = "asya-operator-injector";
const REVIEWS: &str = "asya_webhook_reviews_total";

/// A cluster with a controller and the webhook's replicas.
pub(crate) struct Stage {
    pub(crate) webhook: Webhook,
    operator: Operator,
    controller: Instance,
    pub(crate) cluster: RunningCluster,
}

impl Stage {
    /// Installs the chart and starts both programs, with additional flags for the controller.
    pub(crate) async fn set(flags: &[&str]) -> Result<Self> {
        Self::set_with(json!({}), flags).await
    }

    /// Like [`Self::set`], with additional chart values.
    async fn set_with(values: Value, flags: &[&str]) -> Result<Self> {
        let cluster = RunningCluster::start(Options::default()).await?;
        let operator = Operator::install(&cluster, values).await?;
        let controller = control(&operator, "controller", flags).await?;
        Ok(Self {
            webhook: Webhook::start(&operator).await?,
            operator,
            controller,
            cluster,
        })
    }
}

/// Starts a controller with additional flags.
pub(crate) async fn control(operator: &Operator, name: &str, flags: &[&str]) -> Result<Instance> {
    let launch = Launch {
        args: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Launch::default()
    };
    let controller = operator.launch(name, launch).await?;
    controller.wait_ready().await?;
    Ok(controller)
}

/// A pod owned by a `ReplicaSet` or `StatefulSet` of this name, with additional labels.
pub(crate) fn pod_of(kind: &str, owner: &str, labels: &Value) -> Result<Pod> {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": kind, "name": owner,
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true,
    });
    Ok(serde_json::from_value(json!({
        "metadata": {"generateName": "probe-", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [
            {"name": "model", "image": "model:1", "ports": [{"containerPort": 8000}]},
        ]},
    }))?)
}

/// Waits until a dry run of the pod gets the sidecar. Nothing is persisted, so the owner need not exist.
pub(crate) async fn gets_sidecar(scenario: &Scenario, pod: &Pod) -> Result<()> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("a pod gets the sidecar", WAIT, async || {
        let made = scenario.api::<Pod>().create(&dry_run, pod).await?;
        if containers(&made).contains(&"asya-sidecar") {
            return Ok(());
        }
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let said: Vec<_> = actors
            .iter()
            .map(|it| it.data["status"].to_string())
            .collect();
        Err(NotYet::new(format!("{:?}; {said:?}", containers(&made))))
    })
    .await
}

fn containers(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.iter().flat_map(|spec| &spec.containers);
    spec.map(|container| container.name.as_str()).collect()
}
