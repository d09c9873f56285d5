//! Dead letter queues, and queues that cannot use them.

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::SOON;
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use serde_json::json;

use crate::{all_running, minimal_actor, own_cluster};

/// QUE-14, FIN-2, RMQ-5, OPS-7
#[tokio::test]
async fn only_an_empty_dead_letter_queue_is_deleted_with_its_actor() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "dead", async |scenario| {
        let rabbitmq = cluster.rabbitmq()?;
        let mut shared = asya_tests::operator::default_values(&cluster)["transports"]["rabbitmq"].clone();
        shared["config"]["queues"] = json!({"dlq": {"enabled": true, "name": "asya-graveyard"}});
        let install = async |enabled: bool| {
            let own = json!({"dlq": {"enabled": enabled}});
            let values = json!({
                "leaderElection": {"enabled": false},
                "transports": {"rabbitmq": {"config": {"queues": own}}, "shared": shared},
            });
            Operator::install(&cluster, values).await
        };
        let first = install(true).await?.start("one").await?;
        let names = ["poisoned", "clean", "shares", "classic"].map(|name| scenario.name(name));
        let queues = names.clone().map(|name| format!("asya-{name}"));
        let mut actors = names.clone().map(|name| minimal_actor(&name));
        actors[2]["spec"]["transport"] = json!("shared");

        // A classic queue, as an earlier operator that set no queue type may have declared it.
        let dlq = format!("{}-dlq", queues[3]);
        let arguments = json!({
            "x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq,
        });
        rabbitmq.declare(&queues[3], arguments).await?;
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        scenario.event("DeliveryLimitInactive", SOON).await?;
        let about = scenario
            .kubectl(&["get", "events", "--field-selector=reason=DeliveryLimitInactive", "-o", "jsonpath={.items[*].involvedObject.name}"])
            .await?;
        assert_eq!(about, names[3], "the others are quorum queues, and it is said once");
        let kind = async |queue: &str| {
            let found = rabbitmq.queue(queue).await?;
            Ok::<_, asya_tests::Error>(found.map(|found| found.kind))
        };
        for (queue, wanted) in queues.iter().zip(["quorum", "quorum", "quorum", "classic"]) {
            assert_eq!(kind(queue).await?.as_deref(), Some(wanted), "{queue}");
        }
        let poisoned = format!("{}-dlq", queues[0]);
        assert!(rabbitmq.publish("", &poisoned, "poison").await?);

        let delete = async |name: &str| {
            let delete = ["delete", "asya", name, "--timeout=60s"];
            scenario.kubectl(&delete).await.map(drop)
        };
        delete(&names[1]).await?;
        first.stop().await?;
        // Created dead letter queues are remembered, whatever is configured now.
        let _second = install(false).await?.start("two").await?;
        for name in [&names[0], &names[2], &names[3]] {
            delete(name).await?;
        }
        scenario.event("DeadLettersKept", SOON).await?;
        let mut left: Vec<String> = rabbitmq.queues().await?.into_iter().map(|queue| queue.name).collect();
        left.sort();
        assert_eq!(
            left,
            ["asya-graveyard", &poisoned],
            "one that others share is nobody's to delete, empty or not"
        );
        assert_eq!(rabbitmq.messages(&poisoned, 9, true).await?, ["poison"]);
        Ok(())
    })
    .await;
}
