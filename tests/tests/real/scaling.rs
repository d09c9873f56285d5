//! KEDA scales by real messages.

use asya_tests::Result;
use asya_tests::scenario::Scenario;
use futures::future::try_join_all;
use serde_json::json;

use crate::{Broker, SOON, actor, actor_without_pods, message, run};

async fn is_scaled_from_and_to_zero(scenario: &Scenario, broker: Broker) -> Result<()> {
    let base = format!("scaled-{}", broker.transport());
    let (name, next) = (scenario.name(&base), scenario.name(&format!("{base}-next")));
    let mut scaled = actor(&name, broker, "handlers.shout");
    scaled["spec"]["scaling"] = json!({
        "enabled": true, "minReplicas": 0, "maxReplicas": 2, "queueLength": 1, "pollingInterval": 1, "cooldownPeriod": 2,
    });
    scenario.apply(&scaled).await?;
    run(scenario, &[actor_without_pods(&next, broker)]).await?;
    scenario.actor_status(&name, "Napping", SOON).await?;
    let cluster = scenario.cluster();
    let sent = message("1", &name, &next, &json!({"text": "good morning"}));
    broker.send(cluster, &name, &[sent]).await?;
    let results = broker.take(cluster, &next, 1, SOON).await?;
    assert_eq!(results[0]["payload"]["text"], "GOOD MORNING");
    scenario.actor_status(&name, "Napping", SOON).await?;
    Ok(())
}

/// KEDA-4, KEDA-6, WRK-3
#[tokio::test]
async fn first_message_scales_a_napping_actor_from_zero_and_it_is_scaled_to_zero_when_idle() {
    Scenario::run("scaling", async |scenario| {
        let both = [Broker::RabbitMq, Broker::Sqs];
        try_join_all(both.map(|broker| is_scaled_from_and_to_zero(scenario, broker)))
            .await
            .map(drop)
    })
    .await;
}
