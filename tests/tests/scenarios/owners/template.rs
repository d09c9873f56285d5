//! Strategy Template: the sidecar stands in the target's pod template.

use asya_tests::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::owners::argo::{Argo, Sync};
use asya_tests::owners::kaito::{WORKSPACE, workspace};
use asya_tests::owners::{Hand, Kind, Owner, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::argo::manifest;
use super::conflicts::{GIVEN_UP, conflict};
use super::{SOON, edit, somebody};
use crate::binding::{bound_actor, condition, status_is};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;

/// An actor that binds Deployment "model" by its template.
async fn bind(scenario: &Scenario) -> Result<String> {
    let name = scenario.name("actor");
    let mut actor = bound_actor(&name, "model");
    actor["spec"]["binding"] = json!({"strategy": "Template"});
    actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
    scenario.apply(&actor).await?;
    Ok(name)
}

async fn template(hand: &Hand) -> Result<Value> {
    let live = hand.get(DEPLOYMENT, "model").await?.unwrap_or_default();
    Ok(live["spec"]["template"].clone())
}

fn names(spec: &Value) -> Vec<&str> {
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    containers
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect()
}

/// Waits until all pods have these containers.
async fn pods_have(hand: &Hand, wanted: &[&str]) -> Result<()> {
    eventually("all pods are as the template says", SOON, async || {
        let pods = hand.list(Kind::POD).await?;
        let all: Vec<_> = pods.iter().map(|pod| names(&pod["spec"])).collect();
        check(all == [wanted, wanted], format_args!("{all:?}"))
    })
    .await
}

/// BIND-50, BIND-8, BIND-43
#[tokio::test]
async fn sidecar_stands_in_the_template_until_the_actor_goes() {
    Scenario::run("in-template", async |scenario| {
        let hand = somebody(scenario);
        hand.create(DEPLOYMENT, &manifest("model", Some(2))).await?;
        let before = template(&hand).await?;
        let name = bind(scenario).await?;
        let status = status_is(scenario, &name, "all pods have it", SOON, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
                && status["status"] == "Running"
        })
        .await?;
        let pods = json!({"matched": 2, "injected": 2, "notInjected": 0, "outdated": 0});
        assert_eq!(status["pods"], pods);
        assert_eq!(condition(&status, "Conflict"), ("False", "NoConflict"));
        let all = ["model", "asya-runtime", "asya-sidecar"];
        assert_eq!(names(&template(&hand).await?["spec"]), all);
        pods_have(&hand, &all).await?;

        // What others change there changes nothing of ours, and starts no write.
        let audit = scenario.cluster().audit();
        let (mark, user) = (audit.mark().await?, scenario.cluster().operator_user()?);
        let other = json!({"metadata": {"labels": {"team": "b"}}, "spec": {"replicas": 3}});
        edit(scenario, DEPLOYMENT, "model", &other).await?;
        status_is(scenario, &name, "the third has it", SOON, |status| {
            status["pods"]["injected"] == 3 && status["desiredReplicas"] == 3
        })
        .await?;
        let mut writes = audit.writes_in(mark, scenario.namespace()).await?;
        writes.retain(|it| it.user == user && it.resource == "deployments");
        assert_eq!(writes.len(), 0, "{writes:?}");
        edit(
            scenario,
            DEPLOYMENT,
            "model",
            &json!({"spec": {"replicas": 2}}),
        )
        .await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        scenario.actor_gone(&name, SOON).await?;
        assert_eq!(template(&hand).await?, before, "as before");
        pods_have(&hand, &["model"]).await
    })
    .await;
}

/// BIND-50
#[tokio::test]
async fn sidecar_leaves_the_template_when_an_owner_comes() {
    Scenario::run("template-owned", async |scenario| {
        crds::install(scenario.cluster(), &[WORKSPACE]).await?;
        let hand = somebody(scenario);
        hand.create(DEPLOYMENT, &manifest("model", Some(2))).await?;
        let before = template(&hand).await?;
        let name = bind(scenario).await?;
        status_is(scenario, &name, "all pods have it", SOON, |status| {
            condition(status, "Injected") == ("True", "AllPodsInjected")
        })
        .await?;
        let phi = hand.create(WORKSPACE, &workspace("phi", "phi-4")).await?;
        let reference = json!({
            "apiVersion": WORKSPACE.api_version(), "kind": "Workspace", "name": "phi",
            "uid": phi["metadata"]["uid"], "controller": true,
        });
        let owned = json!({"metadata": {"ownerReferences": [reference]}});
        edit(scenario, DEPLOYMENT, "model", &owned).await?;
        let status = status_is(scenario, &name, "it is refused", SOON, |status| {
            condition(status, "Injected") == ("False", "StrategyNotAllowed")
                && status["template"].is_null()
        })
        .await?;
        assert!(
            status["conditions"].to_string().contains("Workspace/phi"),
            "{status}"
        );
        assert_eq!(template(&hand).await?, before, "as before");
        pods_have(&hand, &["model"]).await
    })
    .await;
}

/// CONF-1, CONF-8, CONF-10
#[tokio::test]
async fn template_that_an_owner_takes_back_is_written_five_times() {
    Scenario::run("template-replaced", async |scenario| {
        let owner = Owner::start(
            scenario,
            Argo::new(manifest("model", Some(2)), Sync::Replace),
        );
        owner.rounds(1).await?;
        let since = scenario.cluster().audit().mark().await?;
        let name = bind(scenario).await?;
        let status = status_is(scenario, &name, "it is given up", GIVEN_UP, |status| {
            status["conflicts"][0]["state"] == "Stopped"
                && condition(status, "Injected").0 == "False"
        })
        .await?;
        assert_eq!(condition(&status, "Conflict"), ("True", "BindingConflict"));
        assert_eq!(status["conflictCount"], 5, "{status}");
        let lost = conflict(&status);
        let field = "spec.template.spec.containers[asya-runtime]";
        assert_eq!(
            (&lost["part"], &lost["field"]),
            (&json!("Template"), &json!(field))
        );
        assert_eq!(
            lost["rival"], "probably argocd-controller (Update)",
            "{status}"
        );
        let user = scenario.cluster().operator_user()?;
        let audit = scenario.cluster().audit();
        let mut writes = audit.writes_in(since, scenario.namespace()).await?;
        writes.retain(|it| it.resource == "deployments" && it.user == user);
        // Each is tried first; and whose it is.
        assert!(writes.len() <= 10 + 1, "{writes:?}");
        owner.rounds(10).await?;
        let hand = somebody(scenario);
        assert_eq!(names(&template(&hand).await?["spec"]), ["model"]);
        pods_have(&hand, &["model"]).await
    })
    .await;
}
