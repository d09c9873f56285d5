//! Clients that can reach the webhook's port can neither exhaust its memory nor delay reviews beyond their timeout.
//! `make bench` measures the latency of reviews meanwhile.

use std::time::Duration;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{check, eventually};
use asya_tests::flood::Clients;
use asya_tests::operator::{Instance, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::own_cluster_to_measure;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;

use super::control;
use super::load::{bind, failed_open};
use super::stream::{Stream, all_injected};

const NAMESPACE: &str = "asya-system";
/// Idle connections opened before the attack, which are cheap, and during it.
const IDLE_BEFORE: usize = 4_000;
const IDLE_DURING: usize = 1_000;
const STREAMS: u32 = 256;
const BODIES: usize = 40;
/// Number of pods created during the attack, at 50 a second.
const PODS: usize = 500;

/// ADM-20, ADM-21, ADM-22
#[tokio::test]
async fn flood_neither_exhausts_memory_nor_fails_reviews() {
    let _turn = own_cluster_to_measure().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let operator = Operator::install(&cluster, json!({"webhook": {"replicaCount": 1}}));
    let operator = operator.await.unwrap();
    let _controller = control(&operator, "controller", &[]).await.unwrap();
    let webhook = Webhook::start(&operator).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "flood", async |scenario| {
        let replica = &webhook.replicas()[0];
        let limit = memory_limit(&cluster).await?;
        let before = peak_memory(replica)?;
        bind(scenario, "model").await?;
        let clients = Clients::of(&cluster, replica).await?;
        let stream = Stream::start(scenario, "model").await?;
        stream.continues(50).await?;

        let before_attack = clients.idle(IDLE_BEFORE).await;
        clients.slow_streams(STREAMS);
        clients.large_bodies(BODIES);
        let opened = before_attack + clients.idle(IDLE_DURING).await;
        assert!(opened > 4_500, "{opened} connections");
        let made = stream.made().len();
        eventually("pods are created", Duration::from_mins(3), async || {
            let now = stream.made().len();
            check(now >= made + PODS, now)
        })
        .await?;
        let open = replica.metric("asya_webhook_connections", &[]).await?;
        drop(clients);

        let peak = peak_memory(replica)?;
        eprintln!(
            "memory: {before} bytes before, {peak} at most, limit {limit}; {open} connections"
        );
        assert!(peak < limit, "{peak} of {limit} bytes");
        assert!(open <= 1024.0, "{open} connections");
        all_injected(&stream.end().await?)?;
        let failed = failed_open(scenario).await?;
        assert_eq!(failed, None, "reviews failed open");
        let refused = replica.metric("asya_webhook_reviews_total", &[("reason", "Busy")]);
        assert!(refused.await? >= 1.0, "the attack was none");
        Ok(())
    })
    .await;
}

/// The chart's memory limit in bytes.
async fn memory_limit(cluster: &RunningCluster) -> Result<u64> {
    let deployments = Api::<Deployment>::namespaced(cluster.client(), NAMESPACE);
    let deployment = deployments.get("asya-operator-webhook").await?;
    let limit = json!(deployment)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"].clone();
    let limit = limit
        .as_str()
        .and_then(|it| it.strip_suffix("Mi")?.parse::<u64>().ok());
    let limit = limit.ok_or_else(|| Error::Other("no limit in Mi".into()))?;
    Ok(limit << 20)
}

/// The process's peak resident memory since its start, in bytes.
fn peak_memory(replica: &Instance) -> Result<u64> {
    let path = format!("/proc/{}/status", replica.process().pid());
    let status = std::fs::read_to_string(path).map_err(Error::other)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let kib = kib.ok_or_else(|| Error::Other("no VmHWM".into()))?;
    Ok(kib << 10)
}
