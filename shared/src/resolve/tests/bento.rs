use serde_json::{Value, json};

use super::objects::*;
use crate::resolve::*;

pub(super) fn bento() -> Value {
    object(
        "serving.yatai.ai/v2alpha1",
        "BentoDeployment",
        "iris",
        &json!({"spec": {"bento": "iris-1", "ingress": {"enabled": true}, "runners": [{"name": "iris_clf"}]}}),
    )
}

pub(super) fn deployment(bento: &Value, name: &str) -> Value {
    let labels = json!({"yatai.ai/selector": name, "yatai.ai/bento-deployment": "iris"});
    let containers =
        json!([{"name": "main", "image": "bentos/iris:1", "ports": [{"containerPort": 3000}]}]);
    by(bento, workload("Deployment", name, &labels, &containers))
}

/// RES-2, RES-23
#[test]
fn bento_deployment_resolves_to_its_api_server_without_runners() {
    let target = bento();
    let runner = deployment(&target, "iris-runner-0");
    let it = found(&target, &[&runner, &deployment(&target, "iris")]);
    assert_eq!(chain(&it), ["BentoDeployment/iris", "Deployment/iris"]);
    let path = vec!["spec", "extraPodMetadata", "annotations"];
    assert_eq!(it.roll, RolloutMethod::Annotate(it.chain[0].clone(), path));
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:3000", "rest")
    );
    let pod = |name| [("yatai.ai/selector", name), (POD_TEMPLATE_HASH, "5d8f7c")];
    for pods in [it.pods, unresolved_pods(&target)] {
        assert!(has(
            &pods,
            &pod("iris"),
            ("apps/v1", "ReplicaSet", "iris-5d8f7c")
        ));
        assert!(!has(
            &pods,
            &pod("iris-runner-0"),
            ("apps/v1", "ReplicaSet", "iris-runner-0-5d8f7c")
        ));
    }
    assert_eq!(
        waits(&target, &[&runner]),
        "BentoDeployment/iris has no Deployment for its API server yet; waiting for Yatai to create it"
    );
}

/// SO-4, RES-23
#[test]
fn bento_deployment_has_a_warning_and_is_never_scaled() {
    let target = bento();
    let own = deployment(&target, "iris");
    assert_eq!(
        not_scaled(&target, &[&own]),
        "BentoDeployment/iris: Yatai always creates an HPA for it; set spec.scaling.enabled to false, or deploy the Bento's image \
         as a Deployment"
    );
    assert_eq!(
        warnings(&target, &[&own]),
        [(
            CaveatReason::BindingCaveat,
            "BentoDeployment/iris: Yatai has had no release since 2024; deploy the Bento's image as a Deployment and bind that".to_owned()
        )]
    );
}
