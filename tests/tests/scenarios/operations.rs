//! What people who run the operator see of it.

use std::time::Duration;

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::Value;

use crate::minimal_actor;

const SOON: Duration = Duration::from_secs(30);

fn log_lines(scenario: &Scenario) -> Vec<Value> {
    let state = scenario.cluster().state();
    let instances = state
        .operator
        .iter()
        .flat_map(|operator| &operator.instances);
    let logs = instances.filter_map(|instance| std::fs::read_to_string(&instance.log).ok());
    let lines: Vec<_> = logs
        .flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// FW-10, OPS-5
#[tokio::test]
async fn log_line_of_a_pass_names_its_actor_and_pass() {
    Scenario::run("logs", async |scenario| {
        let name = scenario.name("logged");
        scenario.apply(&minimal_actor(&name)).await?;
        let actor = scenario.actor_status(&name, "Running", SOON).await?;
        let lines = log_lines(scenario);
        let of_pass = |line: &&Value| line["span"]["namespace"] == scenario.namespace();
        let line = lines
            .iter()
            .find(of_pass)
            .expect("the ConfigMap of a new namespace is told");
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

/// RUN-3
#[tokio::test]
async fn runtime_script_stands_in_the_operators_namespace_and_comes_back() {
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
async fn metrics_tell_actors_queue_and_brokers() {
    Scenario::run("metrics", async |scenario| {
        let name = scenario.name("counted");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let state = scenario.cluster().state();
        let operator = state.operator.as_ref().expect("an operator runs");
        let url = format!("{}/metrics", operator.instances[0].metrics);
        asya_tests::install_crypto_provider();
        let text = reqwest::get(url).await?.text().await?;
        for wanted in [
            r#"asya_operator_actors{transport="rabbitmq",status="Running"}"#,
            r#"asya_operator_records{kind="Pod"}"#,
            r#"asya_operator_watch_healthy{kind="AsyncActor"} 1"#,
            r#"asya_operator_transport_up{transport="rabbitmq"} 1"#,
            r#"controller_runtime_reconcile_total{controller="asyncactor",result="success"}"#,
            "asya_operator_api_writes_total",
            "workqueue_depth",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        Ok(())
    })
    .await;
}
