//! Standalone actors, which own their workload.

use asya_tests::Result;
use asya_tests::scenario::Scenario;
use futures::future::try_join_all;
use serde_json::json;

use crate::{Broker, SOON, actor, actor_without_pods, message, run};

/// A message reaches the handler in a pod of this kind of workload, and its result reaches the next queue.
async fn answers(scenario: &Scenario, broker: Broker, kind: &str) -> Result<()> {
    let base = format!("{}-{}", broker.transport(), kind.to_lowercase());
    let (name, next) = (scenario.name(&base), scenario.name(&format!("{base}-next")));
    let mut worker = actor(&name, broker, "handlers.shout");
    worker["spec"]["workload"]["kind"] = json!(kind);
    run(scenario, &[worker, actor_without_pods(&next, broker)]).await?;
    let cluster = scenario.cluster();
    let sent = message("1", &name, &next, &json!({"text": "hello"}));
    broker.send(cluster, &name, &[sent]).await?;
    let results = broker.take(cluster, &next, 1, SOON).await?;
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(results[0]["id"], "1");
    assert_eq!(results[0]["route"]["current"], 1);
    assert_eq!(results[0]["payload"]["text"], "HELLO");
    let pod = results[0]["payload"]["pod"].as_str().unwrap_or_default();
    assert!(pod.starts_with(&name), "{pod} handled it");
    Ok(())
}

/// POD-1 to POD-8, RUN-10 to RUN-16, RMQ-4, SQS-2, SC-114
#[tokio::test]
async fn handled_message_puts_its_result_into_the_next_queue() {
    Scenario::run("standalone", async |scenario| {
        let all = [Broker::RabbitMq, Broker::Sqs]
            .into_iter()
            .flat_map(|broker| ["Deployment", "StatefulSet"].map(|kind| (broker, kind)))
            .map(|(broker, kind)| answers(scenario, broker, kind));
        try_join_all(all).await.map(drop)
    })
    .await;
}
