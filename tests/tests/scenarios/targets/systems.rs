//! Targets of KAITO, KServe and KubeRay: real CRDs with simulated controllers.

use asya_tests::Result;
use asya_tests::eventually::SOON;
use asya_tests::owners::kaito::{Kaito, WORKSPACE, workspace};
use asya_tests::owners::kserve::{INFERENCE_SERVICE, Kserve, deployment_of, inference_service};
use asya_tests::owners::ray::{RAY_CLUSTER, RayClusters, ray_cluster};
use asya_tests::owners::{Kind, Owner, Reconciler, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, status_is};

/// Creates a target, lets its owner reconcile it, and binds it through another version of its kind.
pub(super) async fn bind(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    made: (Kind, &Value),
) -> Result<(Owner, String)> {
    bind_as(scenario, reconciler, made, &json!({})).await
}

/// Like [`bind`], with additional fields in the actor's spec.
pub(crate) async fn bind_as(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    (kind, target): (Kind, &Value),
    spec: &Value,
) -> Result<(Owner, String)> {
    let (owner, target) = create_target(scenario, reconciler, (kind, target)).await?;
    let name = bind_target(scenario, kind, &target, spec).await?;
    Ok((owner, name))
}

/// Creates a target, and starts its owner. Returns the target's name.
pub(crate) async fn create_target(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    (kind, target): (Kind, &Value),
) -> Result<(Owner, String)> {
    crds::install(scenario.cluster(), &[kind]).await?;
    let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
    let made = client.create(kind, target).await?;
    let owner = Owner::start(scenario, reconciler);
    owner.rounds(1).await?;
    let target = made["metadata"]["name"].as_str().unwrap_or_default();
    Ok((owner, target.to_owned()))
}

/// Binds an existing target, and returns the actor's name.
pub(crate) async fn bind_target(
    scenario: &Scenario,
    kind: Kind,
    target: &str,
    spec: &Value,
) -> Result<String> {
    let name = scenario.name(target);
    let mut actor = bound_actor(&name, target);
    actor["spec"]["workloadRef"] = json!({
        "apiVersion": format!("{}/v9", kind.group), "kind": kind.kind, "name": target,
    });
    let more = spec.as_object().into_iter().flatten();
    for (key, value) in more {
        actor["spec"][key] = value.clone();
    }
    scenario.apply(&actor).await?;
    Ok(name)
}

/// Waits until status reports this owner chain and number of pods.
async fn is_bound(scenario: &Scenario, actor: &str, chain: &Value, pods: i64) -> Result<Value> {
    status_is(scenario, actor, "it is bound", SOON, |status| {
        condition(status, "TargetResolved") == ("True", "Resolved")
            && status["resolvedTarget"]["chain"] == *chain
            && status["pods"]["matched"] == pods
    })
    .await
}

/// RES-2, RES-13, BIND-4
#[tokio::test]
async fn workspace_is_bound_by_its_stateful_set() {
    Scenario::run("bound-kaito", async |scenario| {
        let target = workspace("phi", "phi-4");
        let (_owner, name) = bind(scenario, Kaito, (WORKSPACE, &target)).await?;
        let chain = json!(["Workspace/phi", "StatefulSet/phi"]);
        let status = is_bound(scenario, &name, &chain, 1).await?;
        assert_eq!(status["resolvedTarget"]["kind"], "StatefulSet");
        let selector = &status["resolvedTarget"]["podSelector"];
        assert_eq!(selector, "kaito.sh/workspace=phi");
        Ok(())
    })
    .await;
}

/// RES-15
#[tokio::test]
async fn inference_service_is_bound_by_its_deployment() {
    Scenario::run("bound-kserve", async |scenario| {
        let target = inference_service("iris", &json!({}));
        let (_owner, name) = bind(scenario, Kserve, (INFERENCE_SERVICE, &target)).await?;
        let workload = format!("Deployment/{}", deployment_of("iris"));
        let chain = json!(["InferenceService/iris", workload]);
        let status = is_bound(scenario, &name, &chain, 2).await?;
        assert_eq!(status["desiredReplicas"], 2);
        Ok(())
    })
    .await;
}

/// RES-18
#[tokio::test]
async fn only_workers_of_a_ray_cluster_are_bound() {
    Scenario::run("bound-ray", async |scenario| {
        let target = ray_cluster("batch", 3);
        let (_owner, name) = bind(scenario, RayClusters, (RAY_CLUSTER, &target)).await?;
        let status = is_bound(scenario, &name, &json!(["RayCluster/batch"]), 3).await?;
        assert_eq!(status["desiredReplicas"], 3);
        Ok(())
    })
    .await;
}
