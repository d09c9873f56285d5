//! What administrators see of the operator.

use std::time::Duration;

use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::metrics::Metrics;
use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use crate::minimal_actor;

/// Longer than twice the chart's interval at which messages are counted.
const COUNTED: Duration = Duration::from_secs(90);

fn log_text(scenario: &Scenario) -> String {
    let state = scenario.cluster().state();
    let instances = state
        .operator
        .iter()
        .flat_map(|operator| &operator.instances);
    let logs = instances.filter_map(|instance| std::fs::read_to_string(&instance.log).ok());
    // The last line may be incomplete.
    logs.map(|log| log[..log.rfind('\n').map_or(0, |end| end + 1)].to_owned())
        .collect()
}

fn log_lines(scenario: &Scenario) -> Vec<Value> {
    log_text(scenario)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// FW-10, OPS-5
#[tokio::test]
async fn log_lines_of_a_reconcile_name_its_actor_and_id() {
    Scenario::run("logs", async |scenario| {
        let name = scenario.name("logged");
        scenario.apply(&minimal_actor(&name)).await?;
        let actor = scenario.actor_status(&name, "Running", SOON).await?;
        let lines = log_lines(scenario);
        let of_pass = |line: &&Value| line["span"]["namespace"] == scenario.namespace();
        let line = lines
            .iter()
            .find(of_pass)
            .expect("the ConfigMap of a new namespace is reported");
        assert_eq!(line["message"], "Runtime ConfigMap reconciled");
        let span = &line["span"];
        assert_eq!(span["actor"], name.as_str());
        assert_eq!(span["uid"].as_str(), actor.metadata.uid.as_deref());
        assert_eq!(span["generation"], 1);
        assert!(span["id"].is_number(), "{span}");
        Ok(())
    })
    .await;
}

/// OPS-5
#[tokio::test]
async fn log_is_json_without_secrets_keeps_known_texts_and_is_silent_about_actors_at_rest() {
    Scenario::run("quiet", async |scenario| {
        let name = scenario.name("silent");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let about = || {
            let lines = log_lines(scenario).into_iter();
            lines
                .filter(|line| line["span"]["namespace"] == scenario.namespace())
                .collect::<Vec<_>>()
        };
        let mut before = about();
        eventually("the log is at rest", SOON, async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let last = std::mem::replace(&mut before, about());
            check(last == before, "it was written")
        })
        .await?;
        // A reconcile that only has to observe the generation, which proves that it ran.
        let mut again = minimal_actor(&name);
        again["spec"]["timeout"] = json!({"progress": 700});
        scenario.apply(&again).await?;
        eventually("the change was seen", SOON, async || {
            let actor = scenario.actors().get(&name).await?;
            let status = &actor.data["status"];
            check(status["observedGeneration"] == 2, status)
        })
        .await?;
        assert_eq!(about(), before, "a pass said something");

        let text = log_text(scenario);
        for line in text.lines() {
            let parsed: Value = serde_json::from_str(line).unwrap_or_default();
            assert!(parsed["message"].is_string(), "no JSON: {line}");
            assert!(!line.contains(OPERATOR_PASSWORD), "a secret: {line}");
        }
        for known in ["Transport registry loaded", "Runtime ConfigMap reconciled"] {
            assert!(
                text.contains(&format!("\"message\":\"{known}\"")),
                "{known}"
            );
        }
        Ok(())
    })
    .await;
}

/// RUN-3
#[tokio::test]
async fn runtime_script_in_the_operators_namespace_is_restored() {
    Scenario::run("home", async |scenario| {
        let home: Api<ConfigMap> = Api::namespaced(scenario.client(), "asya-system");
        let there = async || {
            let found = home.get_opt("asya-runtime").await?;
            let uid = found.and_then(|found| found.metadata.uid);
            uid.ok_or_else(|| NotYet::new("no ConfigMap asya-runtime"))
        };
        let first = eventually("the script is at home", SOON, there).await?;
        home.delete("asya-runtime", &kube::api::DeleteParams::default())
            .await?;
        eventually("it is back", SOON, async || {
            let now = there().await?;
            check(now != first, "the old one")
        })
        .await
    })
    .await;
}

/// OPS-4, FW-14, FW-15
#[tokio::test]
async fn metrics_report_actors_queues_and_brokers() {
    Scenario::run("metrics", async |scenario| {
        let name = scenario.name("counted");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let state = scenario.cluster().state();
        let operator = state.operator.as_ref().expect("an operator runs");
        let url = format!("{}/metrics", operator.instances[0].metrics);
        asya_tests::install_crypto_provider();
        eventually("all is counted", COUNTED, async || {
            let text = reqwest::get(&url).await?.text().await?;
            let metrics = Metrics::parse(&text)?;
            for (name, labels, least) in [
                (
                    "asya_operator_actors",
                    &[("transport", "rabbitmq"), ("status", "Running")][..],
                    1.0,
                ),
                (
                    "asya_operator_queue_messages",
                    &[("namespace", scenario.namespace()), ("actor", &*name)],
                    0.0,
                ),
                ("asya_operator_records", &[("kind", "Pod")], 1.0),
                (
                    "asya_operator_watch_healthy",
                    &[("kind", "AsyncActor")],
                    1.0,
                ),
                (
                    "asya_operator_transport_up",
                    &[("transport", "rabbitmq")],
                    1.0,
                ),
                (
                    "asya_operator_broker_requests_total",
                    &[("transport", "rabbitmq")],
                    1.0,
                ),
                (
                    "controller_runtime_reconcile_total",
                    &[("controller", "asyncactor"), ("result", "success")],
                    1.0,
                ),
                ("asya_operator_api_writes_total", &[], 1.0),
                ("workqueue_depth", &[], 0.0),
            ] {
                let found = metrics.sum(name, labels);
                check(
                    found >= Some(least),
                    format_args!("{name} {labels:?}: {found:?}"),
                )?;
            }
            Ok(())
        })
        .await
    })
    .await;
}
