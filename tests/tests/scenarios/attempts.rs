//! Retries end after a configured number of attempts.

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::{Operator, RABBITMQ_SECRET};
use asya_tests::ports;
use asya_tests::scenario::Scenario;
use serde_json::json;

use crate::{minimal_actor, own_cluster};

/// Counts reconciles whose last attempt failed.
const GIVEN_UP: &str = "controller_runtime_terminal_reconcile_errors_total";

/// FW-6, FW-15
#[tokio::test]
async fn exhausted_retries_resume_only_on_an_event() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "attempts", async |scenario| {
        let values = json!({
            "controller": {"retry": {"attempts": 2, "initial": "100ms"}},
            "transports": {"gone": {"enabled": true, "type": "rabbitmq", "config": {
                "host": "127.0.0.1",
                "username": cluster.rabbitmq()?.user(),
                "passwordSecretRef": {"name": RABBITMQ_SECRET, "key": "password"},
                "management": {"port": ports::free()?},
            }}},
        });
        let operator = Operator::install(&cluster, values).await?;
        let instance = operator.start("operator").await?;
        // The runtime script created for this actor enqueues all actors of the namespace, so wait until that has
        // happened.
        eventually("the CRD is served", AFTER_START, async || {
            let first = minimal_actor("first");
            scenario.apply(&first).await.map_err(NotYet::new)
        })
        .await?;
        scenario
            .actor_status("first", "Running", AFTER_START)
            .await?;
        let mut actor = minimal_actor("stuck");
        actor["spec"]["transport"] = json!("gone");
        scenario.apply(&actor).await?;
        let told = eventually("the last attempt is reported", AFTER_START, async || {
            let found = scenario.actors().get("stuck").await?;
            let all = found.data["status"]["conditions"].as_array().cloned();
            let all = all.unwrap_or_default();
            let told = all.iter().find(|each| {
                each["type"] == "TransportReady" && each["reason"] == "RetriesExhausted"
            });
            told.cloned().ok_or_else(|| NotYet::new(json!(all)))
        })
        .await?;
        let message = told["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("BrokerUnreachable: "), "{message}");
        let given_up = eventually("the last attempt is counted", AFTER_START, async || {
            let given_up = instance.metric(GIVEN_UP, &[]).await.map_err(NotYet::new)?;
            check(given_up > 0.0, given_up)?;
            Ok(given_up)
        })
        .await?;

        // Takes longer than the backoff of all attempts.
        scenario.apply(&minimal_actor("another")).await?;
        scenario
            .actor_status("another", "Running", AFTER_START)
            .await?;
        let later = instance.metric(GIVEN_UP, &[]).await?;
        assert!(later <= given_up, "it was tried again");
        actor["spec"]["transport"] = json!("rabbitmq");
        scenario.apply(&actor).await?;
        scenario
            .actor_status("stuck", "Running", AFTER_START)
            .await?;
        scenario
            .kubectl(&["wait", "asya/stuck", "--for=condition=Ready"])
            .await?;
        Ok(())
    })
    .await;
}
