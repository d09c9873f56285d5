//! KEDA scales on real messages.

use asya_tests::Result;
use asya_tests::scenario::Scenario;
use futures::future::try_join_all;
use serde_json::json;

use crate::{Broker, SOON, actor, message, run, shelf};

async fn naps_wakes_and_naps(scenario: &Scenario, broker: Broker) -> Result<()> {
    let base = format!("nap-{}", broker.transport());
    let (name, next) = (scenario.name(&base), scenario.name(&format!("{base}-next")));
    let mut sleeper = actor(&name, broker, "handlers.shout");
    sleeper["spec"]["scaling"] = json!({
        "enabled": true, "minReplicas": 0, "maxReplicas": 2, "queueLength": 1, "pollingInterval": 1, "cooldownPeriod": 2,
    });
    scenario.apply(&sleeper).await?;
    run(scenario, &[shelf(&next, broker)]).await?;
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
async fn first_message_wakes_a_napping_actor_which_naps_again_when_idle() {
    Scenario::run("scaling", async |scenario| {
        let both = [Broker::RabbitMq, Broker::Sqs];
        try_join_all(both.map(|broker| naps_wakes_and_naps(scenario, broker)))
            .await
            .map(drop)
    })
    .await;
}
