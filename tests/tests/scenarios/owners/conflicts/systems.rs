//! Targets whose workloads are created by their system's own controller.

use asya_tests::Result;
use asya_tests::owners::kaito::{Kaito, WORKSPACE, workspace};
use asya_tests::owners::knative::{
    CONFIGURATION, Knative, Kpa, REVISION, Release, SERVICE, deployment_of as of_knative, service,
};
use asya_tests::owners::kserve::{
    INFERENCE_SERVICE, Kserve, deployment_of as of_kserve, inference_service,
};
use asya_tests::owners::llmisvc::{
    LLM_INFERENCE_SERVICE, LlmIsvc, deployment_of as of_llm, llm_inference_service,
};
use asya_tests::owners::ray::{
    RAY_CLUSTER, RAY_SERVICE, RayClusters, RayServices, ray_cluster, ray_service,
};
use asya_tests::owners::seldon::{
    SELDON_DEPLOYMENT, Seldon, deployment_of as of_seldon, seldon_deployment,
};
use asya_tests::owners::seldon2::{SERVER, Seldon2, server};
use asya_tests::owners::yatai::{BENTO_DEPLOYMENT, Yatai, bento_deployment};
use asya_tests::owners::{Kind, Owner, Reconciler, crds};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::Stage;
use crate::owners::{edit, owner_of};

/// The owner wrote only to create its workload, for the user's change, and at most once more to roll it.
fn wrote_little(owner: &Owner, kind: Kind, own: usize) {
    let changes = owner.changes(kind);
    assert!((own..=own + 1).contains(&changes), "{changes}");
}

/// Tests one system: the target's kind, its object, and a changed object that makes the owner roll its pods.
async fn beside(
    scenario: &Scenario,
    reconciler: impl Reconciler,
    (kind, target, next): (Kind, &Value, &Value),
    workload: (Kind, String),
    pods: u64,
) -> Result<Owner> {
    let owner = owner_of(scenario, reconciler, (kind, target)).await?;
    let name = target["metadata"]["name"].as_str().unwrap_or_default();
    let stage = Stage::set(scenario, (kind, name), workload, pods).await?;
    let change = async || edit(scenario, kind, name, next).await;
    stage.stands(&owner, change).await?;
    Ok(owner)
}

/// CONF-10, SIM-1
#[tokio::test]
async fn kserve_and_operator_coexist() {
    Scenario::run("beside-kserve", async |scenario| {
        let target = inference_service("iris", &json!({}));
        let containers = json!([{"name": "kserve-container", "image": "model:2"}]);
        let next = json!({"spec": {"predictor": {"containers": containers}}});
        let workload = (Kind::DEPLOYMENT, of_kserve("iris"));
        let what = (INFERENCE_SERVICE, &target, &next);
        let owner = beside(scenario, Kserve, what, workload, 2).await?;
        wrote_little(&owner, Kind::DEPLOYMENT, 2);
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-2
#[tokio::test]
async fn llmisvc_and_operator_coexist() {
    Scenario::run("beside-llmisvc", async |scenario| {
        let target = llm_inference_service("qwen");
        let next =
            json!({"spec": {"template": {"containers": [{"name": "main", "image": "vllm:2"}]}}});
        let workload = (Kind::DEPLOYMENT, of_llm("qwen"));
        let what = (LLM_INFERENCE_SERVICE, &target, &next);
        let owner = beside(scenario, LlmIsvc, what, workload, 1).await?;
        wrote_little(&owner, Kind::DEPLOYMENT, 2);
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-3
#[tokio::test]
async fn kaito_and_operator_coexist() {
    Scenario::run("beside-kaito", async |scenario| {
        let target = workspace("phi", "phi-4");
        let next = json!({"inference": {"preset": {"name": "phi-4-mini"}}});
        let workload = (Kind::STATEFUL_SET, "phi".to_owned());
        let what = (WORKSPACE, &target, &next);
        let owner = beside(scenario, Kaito, what, workload, 1).await?;
        wrote_little(&owner, Kind::STATEFUL_SET, 2);
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-4
#[tokio::test]
async fn knative_and_operator_coexist() {
    Scenario::run("beside-knative", async |scenario| {
        let _autoscaler = Owner::start(scenario, Kpa { replicas: 1 });
        beside_knative(scenario, Release::Hashed).await
    })
    .await;
}

/// CONF-10, SIM-4
#[tokio::test]
async fn older_knative_and_operator_coexist() {
    Scenario::run("beside-knative-old", async |scenario| {
        let _autoscaler = Owner::start(scenario, Kpa { replicas: 1 });
        beside_knative(scenario, Release::Template).await
    })
    .await;
}

async fn beside_knative(scenario: &Scenario, release: Release) -> Result<()> {
    crds::install(scenario.cluster(), &[CONFIGURATION, REVISION]).await?;
    let target = service("echo", "echo:1");
    let knative = Knative {
        release,
        queue_proxy: "queue:1",
    };
    let next = json!({"spec": service("echo", "echo:2")["spec"]});
    let workload = (Kind::DEPLOYMENT, of_knative("echo", 1));
    let what = (SERVICE, &target, &next);
    let owner = beside(scenario, knative, what, workload, 1).await?;
    // One Deployment per Revision, of which there are two.
    wrote_little(&owner, Kind::DEPLOYMENT, 2);
    Ok(())
}

/// CONF-10, SIM-5
#[tokio::test]
async fn seldon_and_operator_coexist() {
    Scenario::run("beside-seldon", async |scenario| {
        let target = seldon_deployment("income", &json!({}));
        let mut next = json!({"spec": target["spec"]});
        let component = &mut next["spec"]["predictors"][0]["componentSpecs"][0];
        component["spec"]["containers"][0]["image"] = json!("model:2");
        let workload = (Kind::DEPLOYMENT, of_seldon("income"));
        let what = (SELDON_DEPLOYMENT, &target, &next);
        let owner = beside(scenario, Seldon, what, workload, 1).await?;
        wrote_little(&owner, Kind::DEPLOYMENT, 2);
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-5
#[tokio::test]
async fn seldon_2_and_operator_coexist() {
    Scenario::run("beside-seldon2", async |scenario| {
        let target = server("mlserver", "mlserver:1");
        let next = json!({"spec": server("mlserver", "mlserver:2")["spec"]});
        let workload = (Kind::STATEFUL_SET, "mlserver".to_owned());
        let what = (SERVER, &target, &next);
        let owner = beside(scenario, Seldon2, what, workload, 1).await?;
        wrote_little(&owner, Kind::STATEFUL_SET, 2);
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-5
#[tokio::test]
async fn yatai_and_operator_coexist() {
    Scenario::run("beside-yatai", async |scenario| {
        let target = bento_deployment("iris", "iris-1");
        let next = json!({"spec": {"bento": "iris-2"}});
        let workload = (Kind::DEPLOYMENT, "iris".to_owned());
        let what = (BENTO_DEPLOYMENT, &target, &next);
        let owner = beside(scenario, Yatai, what, workload, 1).await?;
        wrote_little(&owner, Kind::DEPLOYMENT, 2);
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-6
#[tokio::test]
async fn raycluster_and_operator_coexist() {
    Scenario::run("beside-ray", async |scenario| {
        let target = ray_cluster("batch", 2);
        let workload = (RAY_CLUSTER, "batch".to_owned());
        let what = (RAY_CLUSTER, &target, &json!({}));
        beside(scenario, RayClusters, what, workload, 2).await?;
        Ok(())
    })
    .await;
}

/// CONF-10, SIM-6
#[tokio::test]
async fn rayservice_and_operator_coexist() {
    Scenario::run("beside-rayservice", async |scenario| {
        crds::install(scenario.cluster(), &[RAY_CLUSTER]).await?;
        let _clusters = Owner::start(scenario, RayClusters);
        let target = ray_service("summarizer", "ray:1", 2);
        let next = json!({"spec": ray_service("summarizer", "ray:2", 2)["spec"]});
        let workload = (RAY_SERVICE, "summarizer".to_owned());
        let what = (RAY_SERVICE, &target, &next);
        let owner = beside(scenario, RayServices, what, workload, 2).await?;
        // Two creations, and the deletion of the first.
        assert_eq!(owner.changes(RAY_CLUSTER), 3);
        Ok(())
    })
    .await;
}
