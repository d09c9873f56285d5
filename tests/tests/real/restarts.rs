//! Rolling restarts under load.

use std::collections::BTreeMap;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::producer::Producer;
use crate::{Broker, SOON, actor, actor_without_pods, message, run};

/// Messages per batch; five batches a second make 50 messages a second.
const BATCH: usize = 10;
const BATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Restarts per actor, unless `ASYA_RESTARTS` is set.
const RESTARTS: usize = 3;

/// An actor with two pods that takes 20 ms per message. Failures go to a separate queue.
async fn worker(scenario: &Scenario, base: &str, native: bool) -> Result<[String; 3]> {
    let names = ["", "-next", "-errors"].map(|end| scenario.name(&format!("{base}{end}")));
    let [name, next, errors] = &names;
    let mut worker = actor(name, Broker::RabbitMq, "handlers.slow");
    worker["spec"]["workload"]["replicas"] = json!(2);
    worker["spec"]["sidecar"]["native"] = json!(native);
    let env = json!([{"name": "ASYA_ACTOR_ERROR_END", "value": errors}]);
    worker["spec"]["sidecar"]["env"] = env;
    let next_actors = [next, errors].map(|it| actor_without_pods(it, Broker::RabbitMq));
    run(scenario, &[&[worker], next_actors.as_slice()].concat()).await?;
    Ok(names)
}

/// Publishes at a steady rate until stopped. Returns the number of published messages, all of them confirmed.
async fn produce(
    scenario: &Scenario,
    name: &str,
    next: &str,
    stop: watch::Receiver<bool>,
) -> Result<usize> {
    let mut producer = Producer::connect(scenario.cluster()).await?;
    let payload = json!({"seconds": 0.02});
    let mut ticks = interval(BATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sent = 0;
    while !*stop.borrow() {
        ticks.tick().await;
        let batch = (sent..sent + BATCH).map(|it| message(&it.to_string(), name, next, &payload));
        producer.send(name, &batch.collect::<Vec<_>>()).await?;
        sent += BATCH;
    }
    producer.close().await;
    Ok(sent)
}

async fn restart(scenario: &Scenario, name: &str, count: usize) -> Result<()> {
    let deployment = format!("deployment/{name}");
    for _ in 0..count {
        scenario
            .kubectl(&["rollout", "restart", &deployment])
            .await?;
        let status = ["rollout", "status", &deployment, "--timeout=300s"];
        scenario.kubectl(&status).await?;
    }
    Ok(())
}

/// Collects results until every message has one. Returns how often each id arrived.
async fn collect(scenario: &Scenario, next: &str, sent: usize) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    eventually(
        format_args!("{sent} results are in {next}"),
        SOON,
        async || {
            let some = Broker::RabbitMq
                .take(scenario.cluster(), next, 0, SOON)
                .await;
            for result in some.map_err(NotYet::new)? {
                let id = result["id"].as_str().unwrap_or_default().to_owned();
                *counts.entry(id).or_default() += 1;
            }
            check(
                counts.len() == sent,
                format_args!("{} of {sent}", counts.len()),
            )
        },
    )
    .await?;
    Ok(counts)
}

/// SC-78, SC-81, SC-82, RUN-20, POD-11
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn rolling_restarts_under_load_lose_no_message_and_fail_none() {
    let count = std::env::var("ASYA_RESTARTS").ok();
    let count = count.map_or(RESTARTS, |it| {
        it.parse().expect("ASYA_RESTARTS is a number")
    });
    Scenario::run("restarts", async |scenario| {
        let restarted = async |base: &str, native: bool| {
            let [name, next, errors] = worker(scenario, base, native).await?;
            let (stop, stopped) = watch::channel(false);
            let restarts = async {
                restart(scenario, &name, count).await?;
                stop.send_replace(true);
                Ok(())
            };
            let produced = produce(scenario, &name, &next, stopped);
            let (sent, ()) = tokio::try_join!(produced, restarts)?;
            let counts = collect(scenario, &next, sent).await?;
            let twice = counts.values().filter(|it| **it > 1).count();
            let failed = Broker::RabbitMq
                .take(scenario.cluster(), &errors, 0, SOON)
                .await?;
            eprintln!(
                "{base}: {count} restarts, {sent} messages, {twice} of them twice, {} failed",
                failed.len()
            );
            assert_eq!(failed, Vec::<Value>::new());
            Ok(())
        };
        tokio::try_join!(restarted("plain", false), restarted("native", true)).map(drop)
    })
    .await;
}
