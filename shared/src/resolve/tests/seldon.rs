use serde_json::{Value, json};

use super::objects::*;
use crate::resolve::*;

pub(super) fn seldon() -> Value {
    object(
        "machinelearning.seldon.io/v1",
        "SeldonDeployment",
        "iris",
        &json!({
            "spec": {"name": "iris", "predictors": [{"name": "default", "graph": {"name": "classifier", "implementation": "SKLEARN_SERVER", "modelUri": "gs://iris"}}]},
            "status": {"state": "Available", "deploymentStatus": {
                "iris-default-0-classifier": {"availableReplicas": 1, "replicas": 1},
                "iris-default-explainer": {"availableReplicas": 1, "explainerFor": "iris-default"}}},
        }),
    )
}

pub(super) fn deployment(seldon: &Value, name: &str) -> Value {
    let labels = json!({"seldon-deployment-id": "iris", "app": name, "seldon-app": "iris-default"});
    let containers = json!([
        {"name": "classifier", "image": "seldonio/sklearnserver:1.18.2", "ports": [{"containerPort": 9000}]},
        {"name": "seldon-container-engine", "image": "seldonio/seldon-core-executor:1.18.2", "ports": [{"containerPort": 8000}]},
    ]);
    by(seldon, workload("Deployment", name, &labels, &containers))
}

const OWN: &str = "iris-default-0-classifier";

/// RES-2, RES-21
#[test]
fn seldon_deployment_resolves_to_the_deployment_in_its_status_without_explainers() {
    let target = seldon();
    let explainer = deployment(&target, "iris-default-explainer");
    let it = found(&target, &[&explainer, &deployment(&target, OWN)]);
    assert_eq!(
        chain(&it),
        [
            "SeldonDeployment/iris",
            "Deployment/iris-default-0-classifier"
        ]
    );
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
    );
    assert_eq!(it.scale, Scale::Object(it.workload.clone()));
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:8000", "rest")
    );
    let pod = |app| {
        [
            ("seldon-deployment-id", "iris"),
            ("app", app),
            (POD_TEMPLATE_HASH, "5d8f7c"),
        ]
    };
    let owner = ("apps/v1", "ReplicaSet", "iris-default-0-classifier-5d8f7c");
    assert!(has(&it.pods, &pod(OWN), owner));
    assert!(!has(
        &it.pods,
        &pod("iris-default-explainer"),
        ("apps/v1", "ReplicaSet", "iris-default-explainer-5d8f7c")
    ));
    assert!(has(&unresolved_pods(&target), &pod(OWN)[..1], owner));

    let mut other = deployment(&target, OWN);
    other["metadata"]["ownerReferences"][1]["uid"] = json!("of an earlier one");
    assert_eq!(
        waits(&target, &[&other]),
        "SeldonDeployment/iris owns no Deployment of status.deploymentStatus yet; waiting for Seldon to create it"
    );
    assert_eq!(
        waits(&with(seldon(), &json!({"status": null})), &[]),
        "SeldonDeployment/iris: status.deploymentStatus is empty; waiting for Seldon to create a Deployment"
    );
}

/// RES-21, BIND-4
#[test]
fn all_pods_of_several_deployments_are_bound_and_none_is_scaled() {
    let target = with(
        seldon(),
        &json!({"status": {"deploymentStatus": {"iris-green-0-classifier": {}}}}),
    );
    let all = [
        deployment(&target, OWN),
        deployment(&target, "iris-green-0-classifier"),
    ];
    let all: Vec<_> = all.iter().collect();
    let it = found(&target, &all);
    assert_eq!(it.workload.to_string(), "SeldonDeployment/iris");
    let RolloutMethod::AnnotateTemplate(rolled) = &it.roll else {
        panic!("{it:?}");
    };
    assert_eq!(rolled.len(), 2);
    assert_eq!(
        it.to_status("models").pod_selector.as_deref(),
        Some(
            "app in (iris-default-0-classifier,iris-green-0-classifier),seldon-deployment-id=iris"
        )
    );
    assert_eq!(
        not_scaled(&target, &all),
        "SeldonDeployment/iris has several Deployments, iris-default-0-classifier and iris-green-0-classifier, and a \
         queue can scale only one; merge them into one predictor with one component, or set spec.scaling.enabled to false"
    );
}

/// SO-4, RES-21
#[test]
fn seldon_deployment_with_replicas_set_by_seldon_is_not_scaled() {
    for (spec, field) in [
        (json!({"replicas": 1}), "spec.replicas"),
        (
            json!({"predictors": [{"replicas": 1}]}),
            "spec.predictors[].replicas",
        ),
        (
            json!({"predictors": [{"componentSpecs": [{"replicas": 1}]}]}),
            "spec.predictors[].componentSpecs[].replicas",
        ),
        (
            json!({"predictors": [{"componentSpecs": [{"hpaSpec": {}}]}]}),
            "spec.predictors[].componentSpecs[].hpaSpec",
        ),
        (
            json!({"predictors": [{"componentSpecs": [{"kedaSpec": {}}]}]}),
            "spec.predictors[].componentSpecs[].kedaSpec",
        ),
    ] {
        let target = with(seldon(), &json!({"spec": spec}));
        assert_eq!(
            not_scaled(&target, &[&deployment(&target, OWN)]),
            format!(
                "SeldonDeployment/iris: {field} is set, so Seldon sets the replicas; remove it, or set spec.scaling.enabled to false"
            )
        );
    }
}

/// RES-21
#[test]
fn without_the_seldon_engine_the_model_is_called_directly() {
    let server = |containers: &[_]| resolver_of(&seldon()).server(containers, None).url.unwrap();
    assert_eq!(
        server(&[container("classifier", Some(9500))]),
        "http://127.0.0.1:9000"
    );
}

pub(super) fn server() -> Value {
    let rest = json!({"spec": {"serverConfig": "mlserver", "replicas": 1}, "status": {"replicas": 1, "selector": "seldon-server-name=mlserver"}});
    object("mlops.seldon.io/v1alpha1", "Server", "mlserver", &rest)
}

pub(super) fn of_server(server: &Value, kind: &str) -> Value {
    let labels = json!({"seldon-server-name": "mlserver", "app.kubernetes.io/name": "seldon-v2"});
    let containers = json!([{"name": "rclone", "image": "rclone"}, {"name": "mlserver", "image": "seldonio/mlserver:1.7.0"}]);
    by(server, workload(kind, "mlserver", &labels, &containers))
}

/// RES-22
#[test]
fn seldon_server_resolves_to_its_stateful_set_or_deployment() {
    let target = server();
    for (kind, owner) in [
        ("StatefulSet", ("StatefulSet", "mlserver")),
        ("Deployment", ("ReplicaSet", "mlserver-5d8f7c")),
    ] {
        let own = of_server(&target, kind);
        let it = found(&target, &[&own]);
        assert_eq!(
            chain(&it),
            ["Server/mlserver".to_owned(), format!("{kind}/mlserver")]
        );
        assert_eq!(
            it.roll,
            RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
        );
        assert_eq!(scaled(&target, &[&own]), "Server/mlserver");
        assert_eq!(
            (url(&it), it.server.adapter),
            ("http://127.0.0.1:9000", "kserve_v2")
        );
        let labels = [
            ("seldon-server-name", "mlserver"),
            (POD_TEMPLATE_HASH, "5d8f7c"),
        ];
        assert!(has(&it.pods, &labels, ("apps/v1", owner.0, owner.1)));
        assert!(has(
            &unresolved_pods(&target),
            &labels,
            ("apps/v1", owner.0, owner.1)
        ));
        assert!(!has(&it.pods, &labels, ("apps/v1", owner.0, "other")));
    }
    assert_eq!(
        waits(&target, &[]),
        "Server/mlserver has no StatefulSet yet; waiting for Seldon to create it"
    );
    let both = [
        of_server(&target, "StatefulSet"),
        of_server(&target, "Deployment"),
    ];
    assert_eq!(
        refuses(&target, &[&both[0], &both[1]]).reason,
        FindingReason::Ambiguous
    );
}

pub(super) fn model() -> Value {
    let rest = json!({"spec": {"storageUri": "gs://iris", "requirements": ["sklearn"]}});
    object("mlops.seldon.io/v1alpha1", "Model", "iris", &rest)
}

/// RES-22
#[test]
fn seldon_model_is_refused_and_names_its_server() {
    assert_eq!(
        refuses(&model(), &[]),
        Finding::new(
            FindingReason::UnsupportedTarget,
            "Model/iris has no pods of its own; set spec.workloadRef to the Server that loads it in a new AsyncActor"
        )
    );
    assert_eq!(
        refuses(
            &with(model(), &json!({"spec": {"server": "mlserver"}})),
            &[]
        )
        .message,
        "Model/iris has no pods of its own; set spec.workloadRef to Server/mlserver in a new AsyncActor"
    );
    let labels = [("seldon-server-name", "mlserver")];
    assert!(!has(
        &unresolved_pods(&model()),
        &labels,
        ("apps/v1", "StatefulSet", "mlserver")
    ));
}
