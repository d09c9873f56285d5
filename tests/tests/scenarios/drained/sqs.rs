//! Drained actors on SQS, whose message counts are approximate.

use asya_tests::eventually::AFTER_START;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use super::{EMPTIED, MESSAGES, delete, minimal_actor, waits};
use crate::binding::{condition, status_is};

/// QUE-40, QUE-42
#[tokio::test]
async fn sqs_actors_are_deleted_after_two_empty_counts() {
    Scenario::run_patiently("drainsqs", async |scenario| {
        let sqs = scenario.cluster().sqs()?;
        let policies = ["Drain", "DeleteIfEmpty"];
        let names = policies.map(|policy| scenario.name(&policy.to_lowercase()));
        let messages: Vec<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
        for (name, policy) in names.iter().zip(policies) {
            let mut actor = minimal_actor(name);
            actor["spec"]["transport"] = json!("sqs");
            actor["spec"]["queue"] = json!({"deletionPolicy": policy});
            scenario.apply(&actor).await?;
            scenario.actor_status(name, "Running", AFTER_START).await?;
            sqs.send(&format!("asya-{name}"), &messages).await?;
            delete(scenario, name).await?;
        }
        for (name, reason) in names.iter().zip(["QueueDraining", "QueueNotEmpty"]) {
            waits(scenario, name, reason).await?;
        }
        // A message in flight has not been processed yet.
        let draining = format!("asya-{}", names[0]);
        assert_eq!(sqs.receive_all(&draining).await?.len(), MESSAGES);
        let text = format!("{MESSAGES} messages (0 waiting, {MESSAGES} unacknowledged)");
        status_is(scenario, &names[0], "they are in work", EMPTIED, |status| {
            let mut all = status["conditions"].as_array().into_iter().flatten();
            let says = all.any(|it| it["message"].as_str().is_some_and(|it| it.contains(&text)));
            says && condition(status, "Ready").1 == "QueueDraining"
        })
        .await?;
        let deployments = scenario.api::<Deployment>();
        for name in &names {
            assert!(deployments.get_opt(name).await?.is_some());
            sqs.purge(&format!("asya-{name}")).await?;
        }
        for name in &names {
            scenario.actor_gone(name, 2 * EMPTIED).await?;
            assert!(deployments.get_opt(name).await?.is_none());
            assert_eq!(sqs.url(&format!("asya-{name}")).await?, None);
        }
        Ok::<_, asya_tests::Error>(())
    })
    .await;
}
