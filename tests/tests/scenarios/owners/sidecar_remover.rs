//! The simulator of a webhook that removes the sidecar (SIM-9).

use std::time::Duration;

use asya_shared::admission::required_entry_name;
use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::Kind;
use asya_tests::owners::sidecar_remover::{Reinvoked, SidecarRemover};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use super::conflicts::has_sidecar;
use super::somebody;
use crate::admission::{gets_sidecar, pod_of};
use crate::binding::{bound_actor, condition, model, status_is};

/// SIM-9
#[tokio::test]
async fn sidecar_remover_removes_the_sidecar_from_new_pods_and_nothing_else() {
    Scenario::run("sim-remover", async |scenario| {
        let remover = SidecarRemover::start(scenario, Reinvoked::IfNeeded).await?;
        let client = somebody(scenario);
        let pod = |name: &str| {
            let containers = ["model", "asya-runtime", "asya-sidecar", "last"];
            let containers = containers.map(|name| json!({"name": name, "image": "x:1"}));
            json!({"metadata": {"name": name}, "spec": {"containers": containers}})
        };
        let mut tries = 0;
        // A webhook configuration takes effect after a moment.
        let kept = eventually("the sidecar is gone", SOON, async || {
            tries += 1;
            let made = client
                .create(Kind::POD, &pod(&format!("pod-{tries}")))
                .await?;
            let containers = made["spec"]["containers"].as_array().cloned();
            let containers = containers.unwrap_or_default();
            let names: Vec<_> = containers.iter().map(|it| it["name"].clone()).collect();
            check(
                !names.contains(&json!("asya-sidecar")),
                format_args!("{names:?}"),
            )?;
            Ok(names)
        })
        .await?;
        assert_eq!(kept, ["model", "asya-runtime", "last"]);
        assert_eq!(remover.removed(), 1);
        remover.unregister().await?;
        eventually(
            "it is no longer called",
            Duration::from_secs(30),
            async || {
                tries += 1;
                let made = client
                    .create(Kind::POD, &pod(&format!("pod-{tries}")))
                    .await?;
                let count = made["spec"]["containers"].as_array().map(Vec::len);
                check(count == Some(4), format_args!("{count:?}"))
            },
        )
        .await
    })
    .await;
}

/// Recreates all pods of the namespace.
async fn recreate_pods(scenario: &Scenario) -> Result<()> {
    let client = somebody(scenario);
    for pod in client.list(Kind::POD).await? {
        client.delete(Kind::POD, &pod).await?;
    }
    Ok(())
}

/// Binds a Deployment of two pods, and waits until the API server calls the webhook and then the remover for its pods.
async fn bind(scenario: &Scenario, remover: &SidecarRemover) -> Result<String> {
    let deployment = model("model", 2)?;
    let api = scenario.api::<Deployment>();
    api.create(&PostParams::default(), &deployment).await?;
    let actor = scenario.name("actor");
    scenario.apply(&bound_actor(&actor, "model")).await?;
    let client = somebody(scenario);
    eventually("a sidecar was removed", SOON, async || {
        let pods = client.list(Kind::POD).await?;
        check(pods.len() == 2, pods.len())?;
        if remover.removed() == 0 {
            client.delete(Kind::POD, &pods[0]).await?;
        }
        check(remover.removed() > 0, "no")
    })
    .await?;
    recreate_pods(scenario).await?;
    Ok(actor)
}

fn reasons(status: &Value) -> Value {
    let all = status["pods"]["reasons"].as_array();
    let told = all.into_iter().flatten();
    told.map(|it| json!([it["reason"], it["count"]])).collect()
}

/// SIM-9, BIND-7, INJ-12
#[tokio::test]
async fn sidecar_removed_by_another_webhook_is_reported() {
    Scenario::run("removed", async |scenario| {
        let remover = SidecarRemover::start(scenario, Reinvoked::IfNeeded).await?;
        // Let the probe pass, so that pods get the sidecar and then lose it.
        remover.exempt_dry_runs();
        let actor = bind(scenario, &remover).await?;
        let status = status_is(scenario, &actor, "both are reported", SOON, |status| {
            status["pods"]["matched"] == 2 && reasons(status) == json!([["RemovedByOther", 2]])
        })
        .await?;
        assert_eq!(status["pods"]["injected"], 0);
        assert_eq!(condition(&status, "Injected").0, "False");

        remover.unregister().await?;
        let client = somebody(scenario);
        eventually("the webhook has the last word again", SOON, async || {
            let pods = client.list(Kind::POD).await?;
            let injected = pods.iter().filter(|pod| has_sidecar(&pod["spec"])).count();
            if injected < pods.len() {
                recreate_pods(scenario).await?;
            }
            check(
                injected == 2 && pods.len() == 2,
                format_args!("{injected} of {}", pods.len()),
            )
        })
        .await?;
        status_is(scenario, &actor, "both are injected", SOON, |status| {
            status["pods"]["matched"] == 2 && status["pods"]["injected"] == 2
        })
        .await
        .map(drop)
    })
    .await;
}

/// SIM-9, INJ-10
#[tokio::test]
async fn sidecar_is_reinjected_if_the_remover_is_not_reinvoked() {
    Scenario::run("removed-once", async |scenario| {
        let remover = SidecarRemover::start(scenario, Reinvoked::Never).await?;
        let actor = bind(scenario, &remover).await?;
        status_is(scenario, &actor, "both are injected", SOON, |status| {
            let pods = &status["pods"];
            pods["matched"] == 2 && pods["injected"] == 2 && pods["notInjected"] == 0
        })
        .await?;
        assert!(remover.removed() > 2, "{}", remover.removed());
        remover.unregister().await
    })
    .await;
}

/// SIM-9, ROLL-5, BIND-7: a dry run does not reveal the removal, so the operator learns of it from replaced pods.
#[tokio::test]
async fn rollout_stops_if_replacements_lose_the_sidecar_until_the_spec_changes() {
    Scenario::run("removed-rollout", async |scenario| {
        let remover = SidecarRemover::start(scenario, Reinvoked::IfNeeded).await?;
        remover.exempt_dry_runs();
        let api = scenario.api::<Deployment>();
        let target = model("model", 3)?;
        let made = api.create(&PostParams::default(), &target).await?;
        let name = scenario.name("actor");
        let mut actor = bound_actor(&name, "model");
        scenario.apply(&actor).await?;

        let status = status_is(scenario, &name, "the rollout ends", SOON, |status| {
            condition(status, "Injected") == ("False", "RolloutHalted")
                && status["pods"]["matched"] == 3
                && reasons(status) == json!([["RemovedByOther", 3]])
        })
        .await?;
        assert_eq!(status["rollout"]["halted"], true, "{}", status["rollout"]);
        assert_eq!(status["status"], "WorkloadError");
        scenario.event("RolloutHalted", SOON).await?;
        let sets = scenario.api::<ReplicaSet>();
        let templates = sets.list(&ListParams::default()).await?.items.len();
        assert_eq!(templates, 2, "the template was changed once");

        remover.unregister().await?;
        // A rollout that encounters it again halts again, for good.
        let labels = json!({"app": "model", "pod-template-hash": "0"});
        gets_sidecar(scenario, &pod_of("ReplicaSet", "model-0", &labels)?).await?;
        actor["spec"]["timeout"] = json!({"processing": 77});
        scenario.apply(&actor).await?;
        status_is(scenario, &name, "all are injected", SOON, |status| {
            status["pods"]["matched"] == 3 && status["pods"]["injected"] == 3
        })
        .await?;
        let left = api.get("model").await?;
        assert_eq!(left.metadata.uid, made.metadata.uid);
        Ok(())
    })
    .await;
}

/// The failure policy of a required binding's own entry; `None` if there is no such entry.
async fn policy(scenario: &Scenario, actor: &str) -> Result<Option<String>, kube::Error> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(scenario.client());
    let entries = injectors.get("asya-operator-injector").await?.webhooks;
    let name = required_entry_name(scenario.namespace(), actor);
    let mut entries = entries.into_iter().flatten();
    let found = entries.find(|entry| entry.name == name);
    Ok(found.and_then(|entry| entry.failure_policy))
}

/// CFG-8, SIM-9
#[tokio::test]
async fn required_binding_fails_open_while_another_webhook_removes_the_sidecar() {
    Scenario::run("removed-required", async |scenario| {
        let remover = SidecarRemover::start(scenario, Reinvoked::IfNeeded).await?;
        let api = scenario.api::<Deployment>();
        api.create(&PostParams::default(), &model("model", 1)?)
            .await?;
        let name = scenario.name("actor");
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["binding"] = json!({"required": true});
        scenario.apply(&actor).await?;

        let text = "another webhook removes it";
        scenario
            .event_with("InjectionNotProved", &[text], SOON)
            .await?;
        assert_eq!(policy(scenario, &name).await?.as_deref(), Some("Ignore"));

        remover.unregister().await?;
        eventually("its entry fails closed", SOON, async || {
            let policy = policy(scenario, &name).await?;
            check(
                policy.as_deref() == Some("Fail"),
                format_args!("{policy:?}"),
            )
        })
        .await
    })
    .await;
}
