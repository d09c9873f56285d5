//! Queues are checked periodically, without an event.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::process::Signal;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::{minimal_actor, own_cluster};

async fn status(scenario: &Scenario, actor: &str) -> Result<Value, NotYet> {
    let found = scenario.actors().get(actor).await?;
    Ok(found.data["status"].clone())
}

/// QUE-20, QUE-21, QUE-22, QUE-10, OPS-7, FW-33
#[tokio::test]
async fn lost_queue_is_recreated_and_lost_broker_is_reported() {
    let _turn = own_cluster().await;
    let options = Options {
        own_rabbitmq: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "health", async |scenario| {
        let often =
            json!({"controller": {"queueHealthCheckInterval": "1s", "queueMetricsInterval": "1s"}});
        let operator = Operator::install(&cluster, often).await?;
        let _instance = operator.start("one").await?;
        let name = scenario.name("watched");
        let queue = format!("asya-{name}");
        let rabbitmq = cluster.rabbitmq()?;
        scenario.apply(&minimal_actor(&name)).await?;
        let actor = scenario.actor_status(&name, "Running", AFTER_START).await?;
        assert_eq!(
            actor.data["status"]["queuedMessages"], 0,
            "a new queue is empty"
        );

        rabbitmq.delete_queue(&queue).await?;
        eventually("the queue is back", AFTER_START, async || {
            let found = rabbitmq.queue(&queue).await.map_err(NotYet::new)?;
            check(found.is_some(), "no queue")
        })
        .await?;
        scenario.event("QueueRecreated", AFTER_START).await?;
        eventually("senders reach it", AFTER_START, async || {
            let reached = rabbitmq
                .publish("asya", &name, "hello")
                .await
                .map_err(NotYet::new)?;
            check(reached, "not routed")
        })
        .await?;
        eventually(
            "status reports that messages wait",
            Duration::from_mins(2),
            async || {
                let status = status(scenario, &name).await?;
                check(
                    status["queuedMessages"]
                        .as_i64()
                        .is_some_and(|waiting| waiting > 0),
                    status,
                )
            },
        )
        .await?;

        cluster.process("rabbitmq")?.signal(Signal::STOP);
        let actor = scenario
            .actor_status(&name, "TransportError", Duration::from_mins(2))
            .await?;
        let conditions = actor.data["status"]["conditions"].to_string();
        assert!(conditions.contains("BrokerUnreachable"), "{conditions}");
        cluster.process("rabbitmq")?.signal(Signal::CONT);
        scenario
            .actor_status(&name, "Running", Duration::from_mins(2))
            .await?;
        assert!(
            rabbitmq.queue(&queue).await?.is_some(),
            "the queue outlives the outage"
        );
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        Ok(())
    })
    .await;
}
