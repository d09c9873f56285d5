//! Previews of bindings whose pods are not replaced by a Deployment's own rollout, and for users with few permissions.

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::ray::{RAY_CLUSTER, RayClusters, ray_cluster};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::super::{MINUTE, asya, restricted};
use super::{action, preview, problems, target, written};
use crate::binding::{bound_actor, condition, model, status_is};

async fn all_injected(scenario: &Scenario, name: &str) -> Result<()> {
    let injected = |status: &Value| condition(status, "Injected") == ("True", "AllPodsInjected");
    status_is(
        scenario,
        name,
        "all pods are injected",
        2 * MINUTE,
        injected,
    )
    .await
    .map(drop)
}

/// Creates the target, with two pods, as this kind, and waits until they are ready.
async fn running(scenario: &Scenario, kind: &str, spec: &[(&str, Value)]) -> Result<()> {
    let mut workload = serde_json::to_value(model("model", 2)?)?;
    workload["apiVersion"] = json!("apps/v1");
    workload["kind"] = json!(kind);
    for (field, value) in spec {
        workload["spec"][field] = value.clone();
    }
    scenario.apply(&workload).await?;
    let object = format!("{}/model", kind.to_lowercase());
    let args = ["rollout", "status", &object, "--timeout=60s"];
    scenario.kubectl(&args).await.map(drop)
}

/// Names of pods that are not being deleted.
async fn pods(scenario: &Scenario, labels: &str) -> Result<Vec<String>> {
    let list = ListParams::default().labels(labels);
    let pods = scenario.api::<Pod>().list(&list).await?;
    let live = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut names: Vec<String> = live.filter_map(|pod| pod.metadata.name).collect();
    names.sort();
    Ok(names)
}

/// BIND-50: the preview shows the change to the pod template.
#[tokio::test]
async fn template_of_the_target_is_shown_as_it_is_changed() {
    Scenario::run("cli-preview-template", async |scenario| {
        let name = scenario.name("template");
        target(scenario).await?;
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["binding"] = json!({"strategy": "Template"});
        actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
        let first = preview(scenario, &actor, 0).await?;
        assert_eq!(
            action(&first, "Deployment/model"),
            Some("change"),
            "{first:#}"
        );
        assert_eq!(action(&first, "pod of"), None, "{first:#}");
        assert_eq!(
            (&first["restart"]["by"], &first["restart"]["pods"]),
            (&json!("workload"), &json!(2)),
            "{first:#}"
        );
        scenario.apply(&actor).await?;
        all_injected(scenario, &name).await?;
        let same = preview(scenario, &actor, 0).await?;
        assert_eq!(
            action(&same, "Deployment/model"),
            Some("unchanged"),
            "{same:#}"
        );
        assert_eq!(same["restart"], Value::Null, "{same:#}");
        Ok(())
    })
    .await;
}

/// ROLL-4 (a): a rollout that deletes ready pods first waits for the budget.
#[tokio::test]
async fn budget_is_what_a_rollout_waits_for() {
    Scenario::run("cli-preview-budget", async |scenario| {
        let name = scenario.name("budget");
        let strategy = json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
        running(scenario, "Deployment", &[("strategy", strategy)]).await?;
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "model"}}},
        });
        scenario.apply(&budget).await?;
        let args = [
            "wait",
            "pdb/keep",
            "--for=jsonpath={.status.currentHealthy}=2",
            "--timeout=60s",
        ];
        scenario.kubectl(&args).await?;
        let actor = bound_actor(&name, "model");
        let held = preview(scenario, &actor, 0).await?;
        let waits = held["restart"]["waits"].to_string();
        assert!(
            waits.contains("PodDisruptionBudget keep allows no disruption"),
            "{held:#}"
        );
        scenario.apply(&actor).await?;
        let waits = |status: &Value| condition(status, "Injected") == ("False", "RolloutWaiting");
        status_is(scenario, &name, "it waits for the budget", MINUTE, waits).await?;
        scenario.kubectl(&["delete", "pdb", "keep"]).await?;
        all_injected(scenario, &name).await
    })
    .await;
}

/// SAFE-1: pods of a StatefulSet are replaced in the order shown.
#[tokio::test]
async fn pods_of_a_stateful_set_are_shown_in_the_order_of_their_replacement() {
    Scenario::run("cli-preview-set", async |scenario| {
        let name = scenario.name("set");
        running(scenario, "StatefulSet", &[("serviceName", json!("model"))]).await?;
        let mut actor = bound_actor(&name, "model");
        actor["spec"]["workloadRef"]["kind"] = json!("StatefulSet");
        let first = preview(scenario, &actor, 0).await?;
        let inject = action(&first, "pod of StatefulSet/model");
        assert_eq!(inject, Some("inject"), "{first:#}");
        assert_eq!(first["restart"]["by"], "workload", "{first:#}");
        assert_eq!(
            first["restart"]["order"],
            json!(["model-1", "model-0"]),
            "{first:#}"
        );
        scenario.apply(&actor).await?;
        all_injected(scenario, &name).await?;
        let same = preview(scenario, &actor, 0).await?;
        assert_eq!(same["restart"]["pods"], 0, "{same:#}");
        Ok(())
    })
    .await;
}

/// SIM-6: nothing rolls the pods of a Ray cluster, so the operator evicts them.
#[tokio::test]
async fn pods_of_a_ray_cluster_are_shown_as_evicted() {
    Scenario::run("cli-preview-ray", async |scenario| {
        let name = scenario.name("ray");
        crds::install(scenario.cluster(), &[RAY_CLUSTER]).await?;
        let client = RecordingClient::new(scenario.client(), scenario.namespace(), "somebody");
        client.create(RAY_CLUSTER, &ray_cluster("batch", 2)).await?;
        let owner = Owner::start(scenario, RayClusters);
        owner.rounds(1).await?;
        let workers = "ray.io/node-type=worker";
        let before = eventually("the workers are ready", SOON, async || {
            let pods = client.list(Kind::POD).await?;
            let is_ready = |it: &&Value| it["status"]["phase"] == "Running";
            let ready = pods.iter().filter(is_ready).count();
            check(ready == 3, format_args!("{ready}"))?;
            Ok(pods)
        });
        assert_eq!(before.await?.len(), 3, "workers and head");
        let mut actor = bound_actor(&name, "batch");
        actor["spec"]["workloadRef"] =
            json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "batch"});
        let first = preview(scenario, &actor, 0).await?;
        let inject = action(&first, "pod of RayCluster/batch");
        assert_eq!(inject, Some("inject"), "{first:#}");
        assert_eq!(first["restart"]["by"], "operator", "{first:#}");
        let mut order: Vec<String> = serde_json::from_value(first["restart"]["order"].clone())?;
        order.sort();
        assert_eq!(order, pods(scenario, workers).await?, "{first:#}");
        Ok(())
    })
    .await;
}

/// What a user may not read is reported as missing; nothing is guessed.
#[tokio::test]
async fn user_with_few_permissions_is_told_what_is_missing() {
    Scenario::run("cli-preview-user", async |scenario| {
        target(scenario).await?;
        let actor = bound_actor(&scenario.name("user"), "model");
        let file = written(scenario, &actor)?;
        let config = restricted(scenario)?;
        let args = [
            "preview",
            "-f",
            &file,
            "--kubeconfig",
            &config,
            "-o",
            "json",
        ];
        let told = asya(scenario, &args).await?;
        assert_eq!(told.code, Some(2), "{}{}", told.out, told.err);
        let previews = told.json()?;
        assert_eq!(previews[0]["server"]["answer"], "unknown", "{previews:#}");
        assert!(told.out.contains("you may not"), "{}", told.out);

        // Reading is allowed now, but not writing.
        let namespace = scenario.namespace();
        for (name, args) in [
            ("reads", &["clusterrole=view"][..]),
            ("actors", &["role=actors"]),
        ] {
            if name == "actors" {
                let rights = [
                    "create",
                    "role",
                    "actors",
                    "--verb=get,list,create,update",
                    "--resource=asyncactors.asya.sh",
                ];
                scenario.kubectl(&rights).await?;
            }
            let bind = format!("--{}", args[0]);
            let user = ["create", "rolebinding", name, &bind, "--user=nobody"];
            scenario
                .kubectl(&user)
                .await
                .map_err(|error| Error::other(format!("{namespace}: {error}")))?;
        }
        let args = [
            "preview",
            "-f",
            &file,
            "--kubeconfig",
            &config,
            "-o",
            "json",
        ];
        let told = eventually("the permissions are in effect", SOON, async || {
            let told = asya(scenario, &args).await?;
            check(told.out.contains("\"admitted\""), &told.out)?;
            Ok(told)
        })
        .await?;
        assert_eq!(told.code, Some(2), "{}{}", told.out, told.err);
        let previews = told.json()?;
        assert_eq!(previews[0]["server"]["answer"], "admitted", "{previews:#}");
        assert_eq!(problems(&previews[0]), [""; 0], "{previews:#}");
        let unknown = previews[0]["unknown"].to_string();
        assert!(
            unknown.contains("the operator's settings are unknown"),
            "{unknown}"
        );
        assert!(
            told.err.contains("you may not list deployments.apps"),
            "{}",
            told.err
        );
        Ok(())
    })
    .await;
}
