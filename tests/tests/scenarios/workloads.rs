//! Workloads of both kinds, changes from one kind to the other, and workloads that the Go operator left.

use asya_tests::Result;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{all_running, minimal_actor};

fn stateful(name: &str, replicas: i32) -> Value {
    let mut actor = minimal_actor(name);
    actor["spec"]["workload"]["kind"] = json!("StatefulSet");
    actor["spec"]["workload"]["replicas"] = json!(replicas);
    actor
}

/// WRK-2, FIN-2
#[tokio::test]
async fn stateful_set_starts_all_its_pods_at_once_and_goes_with_its_actor() {
    Scenario::run("stateful", async |scenario| {
        let name = scenario.name("shard");
        scenario.apply(&stateful(&name, 3)).await?;
        let actor = scenario.actor_status(&name, "Running", SOON).await?;
        assert_eq!(actor.data["status"]["replicasSummary"], "3/3");
        assert_eq!(actor.data["status"]["workloadRef"]["kind"], "StatefulSet");
        let spec = scenario
            .api::<StatefulSet>()
            .get(&name)
            .await?
            .spec
            .unwrap();
        assert_eq!(spec.service_name.as_deref(), Some(name.as_str()));
        assert_eq!(spec.pod_management_policy.as_deref(), Some("Parallel"));
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        let left = scenario.api::<StatefulSet>().get_opt(&name).await?;
        assert!(left.is_none(), "the StatefulSet outlived its actor");
        Ok(())
    })
    .await;
}

/// WRK-4
#[tokio::test]
async fn rollout_restart_of_either_kind_completes_and_is_not_undone() {
    Scenario::run("restart", async |scenario| {
        let (one, other) = (scenario.name("deployment"), scenario.name("statefulset"));
        let mut actors = [minimal_actor(&one), stateful(&other, 2)];
        actors[0]["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply_all(&actors).await?;
        all_running(scenario, &[one.clone(), other.clone()]).await?;
        for (kind, name) in [("deployment", &one), ("statefulset", &other)] {
            let workload = format!("{kind}/{name}");
            let before = pods(scenario, name).await?;
            scenario
                .kubectl(&["rollout", "restart", &workload])
                .await?;
            scenario
                .kubectl(&["rollout", "status", &workload, "--timeout=60s"])
                .await?;
            let restarted = "jsonpath={.spec.template.metadata.annotations.kubectl\\.kubernetes\\.io/restartedAt}";
            let at = scenario
                .kubectl(&["get", &workload, "-o", restarted])
                .await?;
            assert!(!at.is_empty(), "the restart of {workload} was undone");
            eventually("every pod is another one", SOON, async || {
                let after = pods(scenario, name).await.map_err(NotYet::new)?;
                let left = after.iter().filter(|uid| before.contains(uid)).count();
                check(left == 0 && after.len() == 2, format_args!("{after:?}"))
            })
            .await?;
            scenario.actor_status(name, "Running", SOON).await?;
        }
        Ok(())
    })
    .await;
}

/// The uids of an actor's pods.
async fn pods(scenario: &Scenario, actor: &str) -> Result<Vec<String>> {
    let labels = ListParams::default().labels(&format!("asya.sh/asya={actor}"));
    let pods = scenario.api::<Pod>().list(&labels).await?;
    Ok(pods
        .into_iter()
        .filter_map(|pod| pod.metadata.uid)
        .collect())
}

/// WRK-6
#[tokio::test]
async fn changed_kind_creates_the_new_workload_then_deletes_the_old_one() {
    Scenario::run("kind", async |scenario| {
        let name = scenario.name("both");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        scenario.apply(&stateful(&name, 1)).await?;
        eventually(
            "the Deployment is replaced by a StatefulSet",
            SOON,
            async || {
                let old = scenario.api::<Deployment>().get_opt(&name).await?;
                let new = scenario.api::<StatefulSet>().get_opt(&name).await?;
                check(
                    old.is_none() && new.is_some(),
                    format_args!("{} {}", old.is_some(), new.is_some()),
                )
            },
        )
        .await?;
        eventually("the StatefulSet alone is reported", SOON, async || {
            let actor = scenario.actors().get(&name).await?;
            let status = &actor.data["status"];
            let inventory = status["inventory"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            let told = inventory.len() == 1 && inventory[0]["kind"] == "StatefulSet";
            check(
                told && status["status"] == "Running",
                format_args!("{status}"),
            )
        })
        .await
    })
    .await;
}

/// WRK-7
#[tokio::test]
async fn deployment_of_the_former_operator_is_adopted_in_place() {
    Scenario::run("former", async |scenario| {
        let name = scenario.name("legacy");
        let mut actor = minimal_actor(&name);
        actor["metadata"]["annotations"] = json!({"asya.sh/paused": "true"});
        actor["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&actor).await?;
        let uid = scenario.actors().get(&name).await?.metadata.uid.unwrap();
        let made = former_deployment(&name, &uid);
        let params = PostParams {
            field_manager: Some("manager".to_owned()),
            ..PostParams::default()
        };
        let made = scenario
            .api::<Deployment>()
            .create(&params, &serde_json::from_value(made)?)
            .await?;

        let unpause = json!({"metadata": {"annotations": {"asya.sh/paused": null}}});
        scenario
            .actors()
            .patch(&name, &PatchParams::default(), &Patch::Merge(unpause))
            .await?;
        let taken = eventually("the Deployment is ours", SOON, async || {
            let now = scenario.api::<Deployment>().get(&name).await?;
            let labels = now.metadata.labels.clone().unwrap_or_default();
            match labels.get("app.kubernetes.io/managed-by") {
                Some(manager) if manager == "asya-operator" => Ok(now),
                other => Err(NotYet::new(format!("managed by {other:?}"))),
            }
        })
        .await?;
        assert_eq!(taken.metadata.uid, made.metadata.uid, "it was replaced");
        let spec = taken.spec.unwrap();
        assert_eq!(spec.replicas, Some(2));
        let pod = spec.template.spec.unwrap();
        let env: Vec<_> = pod.containers[0]
            .env
            .iter()
            .flatten()
            .map(|variable| variable.name.as_str())
            .collect();
        assert!(!env.contains(&"DROPPED_LONG_AGO"), "{env:?}");
        scenario.actor_status(&name, "Running", SOON).await?;
        Ok(())
    })
    .await;
}

/// A Deployment of the Go operator: with its labels, our uid as controller, and a variable that we would not set.
fn former_deployment(name: &str, uid: &str) -> Value {
    let labels = json!({"app": name, "asya.sh/asya": name, "asya.sh/workload": "deployment"});
    let env = json!([{"name": "ASYA_HANDLER", "value": "echo.handle"}, {"name": "DROPPED_LONG_AGO", "value": "1"}]);
    json!({
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }]},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [
                    {"name": "asya-runtime", "image": "python:3.13-slim", "env": env},
                    {"name": "asya-sidecar", "image": "asya-sidecar:old"},
                ]},
            },
        },
    })
}
