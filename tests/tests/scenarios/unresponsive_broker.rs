//! A broker that accepts connections and never responds, and one that responds slowly.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::{Operator, default_values};
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::own_cluster_to_measure;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{all_running, all_running_within, minimal_actor, own_cluster};

const UNRESPONSIVE: usize = 50;
const FINE: usize = 20;

/// Accepts connections until the test ends, and never responds.
async fn unresponsive() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    port
}

fn actors(
    scenario: &Scenario,
    stem: &str,
    count: usize,
    transport: &str,
) -> (Vec<String>, Vec<Value>) {
    let names: Vec<String> = (0..count)
        .map(|n| scenario.name(&format!("{stem}-{n}")))
        .collect();
    let actors = names.iter().map(|name| {
        let mut actor = minimal_actor(name);
        actor["spec"]["transport"] = json!(transport);
        actor
    });
    let actors = actors.collect();
    (names, actors)
}

async fn create_and_await_running(scenario: &Scenario, stem: &str) -> Result<()> {
    let (names, actors) = actors(scenario, stem, FINE, "rabbitmq");
    scenario.apply_all(&actors).await?;
    all_running(scenario, &names).await
}

/// Waits until the operator has reconciled every actor on the transport.
async fn taken_up(scenario: &Scenario, transport: &str, count: usize) -> Result<()> {
    eventually("all have a finalizer", Duration::from_mins(2), async || {
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let taken_up = actors.iter().filter(|actor| {
            actor.data["spec"]["transport"] == transport && actor.metadata.finalizers.is_some()
        });
        let taken_up = taken_up.count();
        check(taken_up == count, format_args!("{taken_up} of {count}"))
    })
    .await
}

/// The number of actors on the transport with this status.
async fn count(scenario: &Scenario, transport: &str, status: &str) -> Result<usize> {
    let actors = scenario.actors().list(&ListParams::default()).await?;
    let actors = actors.iter().filter(|actor| {
        actor.data["spec"]["transport"] == transport && actor.data["status"]["status"] == status
    });
    Ok(actors.count())
}

/// QUE-9, QUE-5, STA-4
#[tokio::test]
async fn unresponsive_broker_blocks_no_actor_on_another() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "unresponsive", async |scenario| {
        let transport = json!({
            "type": "rabbitmq", "enabled": true,
            "config": {"host": "127.0.0.1", "management": {"port": unresponsive().await}},
        });
        let operator =
            Operator::install(&cluster, json!({"transports": {"unresponsive": transport}})).await?;
        let _instance = operator.start("one").await?;
        let (_, waiting) = actors(scenario, "unresponsive", UNRESPONSIVE, "unresponsive");
        scenario.apply_all(&waiting).await?;
        taken_up(scenario, "unresponsive", UNRESPONSIVE).await?;
        create_and_await_running(scenario, "fine").await?;

        // Every actor on the unresponsive broker reports it.
        eventually("the others say why", Duration::from_mins(2), async || {
            let reported = count(scenario, "unresponsive", "TransportError").await?;
            check(
                reported == UNRESPONSIVE,
                format_args!("{reported} of {UNRESPONSIVE}"),
            )
        })
        .await
    })
    .await;
}

const SLOW: usize = 500;
/// Enough for that many actors on a slow machine.
const SERVED: Duration = Duration::from_mins(10);

/// OPS-22. `make bench` measures how much longer it takes.
#[tokio::test]
async fn actors_on_another_broker_do_not_queue_behind_those_on_a_slow_one() {
    let _turn = own_cluster_to_measure().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "late", async |scenario| {
        let proxy = CountingProxy::to_rabbitmq(&cluster).await?;
        let mut late = default_values(&cluster)["transports"]["rabbitmq"].clone();
        late["config"]["management"]["port"] = json!(proxy.port());
        let operator = Operator::install(&cluster, json!({"transports": {"late": late}})).await?;
        let instance = operator.start("one").await?;
        proxy.delay((1..=4).map(Duration::from_secs));
        let (names, slow) = actors(scenario, "late", SLOW, "late");
        scenario.apply_all(&slow).await?;
        taken_up(scenario, "late", SLOW).await?;
        let before = count(scenario, "late", "Running").await?;
        create_and_await_running(scenario, "fine").await?;
        let after = count(scenario, "late", "Running").await?;
        // They came last: if they had queued behind the others, nearly all of the others would be Running by now.
        assert!(
            after - before < (SLOW - before) / 2,
            "{before} on the slow broker were Running before, {after} after"
        );

        proxy.delay([]);
        let all = all_running_within(scenario, &names, SERVED);
        instance.process().alive_while(all).await
    })
    .await;
}
