//! Retries that end, where that is asked for.

use std::time::Duration;

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::operator::{Instance, Operator, RABBITMQ_SECRET};
use asya_tests::rabbitmq::OPERATOR;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result, ports};
use serde_json::json;

use crate::{minimal_actor, own_cluster};

const SOON: Duration = Duration::from_mins(1);

/// Passes that were the last attempt and failed.
async fn given_up(instance: &Instance) -> Result<u32> {
    let page = format!("{}/metrics", instance.metrics());
    let text = reqwest::get(page).await?.text().await?;
    let series = "controller_runtime_terminal_reconcile_errors_total{";
    let line = text.lines().find(|line| line.starts_with(series));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.unwrap_or_default().parse().map_err(Error::other)
}

/// FW-6, FW-15
#[tokio::test]
async fn after_the_last_attempt_only_an_event_starts_the_next_pass() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "attempts", async |scenario| {
        let values = json!({
            "controller": {"retry": {"attempts": 2, "initial": "100ms"}},
            "transports": {"gone": {"enabled": true, "type": "rabbitmq", "config": {
                "host": "127.0.0.1",
                "username": OPERATOR,
                "passwordSecretRef": {"name": RABBITMQ_SECRET, "key": "password"},
                "management": {"port": ports::free()?},
            }}},
        });
        let operator = Operator::install(&cluster, values).await?;
        let instance = operator.start("operator").await?;
        let mut actor = minimal_actor("stuck");
        actor["spec"]["transport"] = json!("gone");
        eventually("the CRD is served", SOON, async || {
            scenario.apply(&actor).await.map_err(NotYet::new)
        })
        .await?;
        let told = eventually("the last attempt is told", SOON, async || {
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
        assert_eq!(given_up(&instance).await?, 1);

        // Longer than the delays of all attempts together.
        scenario.apply(&minimal_actor("another")).await?;
        scenario.actor_status("another", "Running", SOON).await?;
        assert_eq!(given_up(&instance).await?, 1, "it was tried again");
        actor["spec"]["transport"] = json!("rabbitmq");
        scenario.apply(&actor).await?;
        scenario.actor_status("stuck", "Running", SOON).await?;
        scenario
            .kubectl(&["wait", "asya/stuck", "--for=condition=Ready"])
            .await?;
        Ok(())
    })
    .await;
}
