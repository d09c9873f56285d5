//! Queues that the operator does not manage.

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::SOON;
use asya_tests::operator::{OPERATOR_AGENT, Operator};
use asya_tests::scenario::Scenario;
use serde_json::json;

use crate::ownership::condition_with_reason;
use crate::scaling::condition;
use crate::{minimal_actor, own_cluster};

/// QUE-4, QUE-5, QUE-12, FIN-4
#[tokio::test]
async fn queues_are_never_written_if_management_is_disabled() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "unmanaged", async |scenario| {
        let values = json!({"controller": {"disableQueueManagement": true}});
        let operator = Operator::install(&cluster, values).await?;
        let _instance = operator.start("one").await?;
        let rabbitmq = cluster.rabbitmq()?;
        let (there, missing) = (scenario.name("there"), scenario.name("missing"));
        let queue = format!("asya-{there}");
        // Declare it with other arguments than the operator would.
        rabbitmq.declare(&queue, json!({"x-max-length": 7})).await?;
        assert!(rabbitmq.publish("", &queue, "kept").await?);
        let log = rabbitmq.access_log();
        let mark = log.mark()?;

        for name in [&there, &missing] {
            scenario.apply(&minimal_actor(name)).await?;
            let running = scenario.actor_status(name, "Running", SOON).await?;
            let told = condition(&running, "TransportReady");
            assert_eq!((&*told.0, &*told.1), ("True", "TransportValidated"));
            let mut changed = minimal_actor(name);
            changed["spec"]["timeout"] = json!({"processing": 100});
            scenario.apply(&changed).await?;
            scenario.kubectl(&["delete", "asya", name]).await?;
            scenario.actor_gone(name, SOON).await?;
        }
        assert_eq!(rabbitmq.messages(&queue, 2, true).await?, ["kept"]);
        assert!(rabbitmq.queue(&format!("asya-{missing}")).await?.is_none());
        let mut calls = log.calls_since(mark, rabbitmq.user())?;
        calls.retain(|call| call.agent.starts_with(OPERATOR_AGENT));
        assert_eq!(calls, [], "the broker was asked");
        Ok(())
    })
    .await;
}

/// QUE-7, FIN-4
#[tokio::test]
async fn user_managed_queue_is_awaited_and_never_written() {
    Scenario::run("theirs", async |scenario| {
        let rabbitmq = scenario.cluster().rabbitmq()?;
        let name = scenario.name("waits");
        let queue = format!("asya-{name}");
        let mut actor = minimal_actor(&name);
        actor["spec"]["transport"] = json!("theirs");
        scenario.apply(&actor).await?;
        let told = condition_with_reason(scenario, &name, "TransportReady", "QueueMissing").await?;
        let text = told["message"].as_str().unwrap_or_default();
        assert!(
            text.contains(&queue) && text.contains("autoCreate"),
            "{text}"
        );
        assert!(rabbitmq.queue(&queue).await?.is_none());

        // Declare it with other arguments than the operator would.
        let arguments = json!({"x-max-length": 7});
        rabbitmq.declare(&queue, arguments.clone()).await?;
        assert!(rabbitmq.publish("", &queue, "kept").await?);
        actor["spec"]["timeout"] = json!({"processing": 100});
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        let left = rabbitmq.queue(&queue).await?;
        let found = left.map(|left| json!(left.arguments)["x-max-length"].clone());
        assert_eq!(found.as_ref(), arguments.get("x-max-length"));
        let keys = rabbitmq.queue_bindings(&queue).await?;
        let ours = keys.iter().filter(|binding| !binding.source.is_empty());
        assert_eq!(ours.count(), 0, "{keys:?}");
        assert_eq!(rabbitmq.messages(&queue, 2, true).await?, ["kept"]);
        assert!(rabbitmq.delete_queue(&queue).await?);
        Ok(())
    })
    .await;
}
