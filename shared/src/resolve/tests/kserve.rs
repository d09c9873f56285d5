use serde_json::{Value, json};

use super::knative;
use super::objects::*;
use crate::resolve::*;

pub(super) fn inference_service(mode: &str) -> Value {
    object(
        "serving.kserve.io/v1beta1",
        "InferenceService",
        "iris",
        &json!({
            "spec": {"predictor": {"minReplicas": 1, "model": {"modelFormat": {"name": "sklearn"}, "protocolVersion": "v1", "runtime": "kserve-sklearnserver", "storageUri": "gs://iris"}}},
            "status": {"deploymentMode": mode, "url": "http://iris.example.com", "modelStatus": {"transitionStatus": "UpToDate"},
                "components": {"predictor": {"url": "http://iris-predictor.example.com", "latestReadyRevision": "iris-predictor-00002", "latestCreatedRevision": "iris-predictor-00003"}}},
        }),
    )
}

/// The Deployment that `KServe` creates for a component in mode Standard.
pub(super) fn deployment(service: &Value, name: &str, component: &str) -> Value {
    let labels = json!({"app": format!("isvc.{name}"), "component": component, "serving.kserve.io/inferenceservice": "iris"});
    let containers = json!([{"name": "kserve-container", "image": "kserve/sklearnserver:v0.20.0"}]);
    by(service, workload("Deployment", name, &labels, &containers))
}

const PREDICTOR: [(&str, &str); 3] = [
    ("serving.kserve.io/inferenceservice", "iris"),
    ("component", "predictor"),
    (POD_TEMPLATE_HASH, "5d8f7c"),
];

/// RES-15
#[test]
fn standard_mode_binds_the_deployment_of_the_predictor() {
    for mode in ["Standard", "RawDeployment"] {
        let target = inference_service(mode);
        let own = deployment(&target, "iris-predictor", "predictor");
        let transformer = deployment(&target, "iris-transformer", "transformer");
        let it = found(&target, &[&transformer, &own]);
        assert_eq!(
            chain(&it),
            ["InferenceService/iris", "Deployment/iris-predictor"]
        );
        let annotations = vec!["metadata", "annotations"];
        assert_eq!(
            it.roll,
            RolloutMethod::Annotate(it.chain[0].clone(), annotations)
        );
        let handoff = AutoscalerHandoff {
            owner: it.chain[0].clone(),
            is_set: false,
            is_propagated: true,
        };
        assert_eq!(it.scale, Scale::HandedOff(it.workload.clone(), handoff));
        assert_eq!(
            (url(&it), it.adapter),
            ("http://127.0.0.1:8080", Some("kserve_v1"))
        );
        assert_eq!(it.warnings, []);
        let by_predictor = ("apps/v1", "ReplicaSet", "iris-predictor-5d8f7c");
        let by_transformer = ("apps/v1", "ReplicaSet", "iris-transformer-5d8f7c");
        assert!(has(&it.pods, &PREDICTOR, by_predictor));
        assert!(!has(&it.pods, &PREDICTOR, by_transformer));
        assert!(has(&unresolved_pods(&target), &PREDICTOR, by_predictor));
        let of_transformer = [PREDICTOR[0], ("component", "transformer"), PREDICTOR[2]];
        assert!(!has(
            &unresolved_pods(&target),
            &of_transformer,
            by_transformer
        ));
    }
}

/// SO-5
#[test]
fn our_autoscaler_class_is_recognised_by_field_manager() {
    let target = inference_service("Standard");
    let own = deployment(&target, "iris-predictor", "predictor");
    let by = |manager: &str, field: &str| {
        let entry = json!({
            "manager": manager, "operation": "Apply",
            "fieldsV1": {"f:metadata": {"f:annotations": {field: {}}}},
        });
        let metadata = json!({
            "annotations": {"serving.kserve.io/autoscalerClass": "external"}, "managedFields": [entry],
        });
        let target = with(target.clone(), &json!({"metadata": metadata}));
        found(&target, &[&own]).scale
    };
    let class = "f:serving.kserve.io/autoscalerClass";
    let ours = by("asya-operator/parent", class);
    assert!(ours.handoff().unwrap().is_set, "{ours:?}");
    for theirs in [
        by("kubectl", class),
        by("asya-operator/parent", "f:asya.sh/roll"),
    ] {
        assert!(matches!(theirs, Scale::Object(_)), "{theirs:?}");
    }
}

/// SAFE-24
#[test]
fn pod_template_shows_whether_the_owner_has_propagated_the_class() {
    let class = |object: Value, path: &str, entries: &Value| {
        let annotated = json!({"annotations": {"serving.kserve.io/autoscalerClass": "external"}, "managedFields": entries});
        let change = match path {
            "metadata" => json!({"metadata": annotated}),
            _ => json!({"spec": {"template": {"metadata": annotated}}}),
        };
        with(object, &change)
    };
    let entries = json!([{
        "manager": "asya-operator/parent", "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:annotations": {"f:serving.kserve.io/autoscalerClass": {}}}},
    }]);
    let bare = inference_service("Standard");
    let handed_off = class(bare.clone(), "metadata", &entries);
    let without = deployment(&bare, "iris-predictor", "predictor");
    let with_it = class(without.clone(), "template", &Value::Null);
    for (service, workload, is_set, is_propagated) in [
        (&bare, &without, false, true),
        (&handed_off, &without, true, false),
        (&handed_off, &with_it, true, true),
        (&bare, &with_it, false, false),
    ] {
        let target = found(service, &[workload]);
        let handoff = target.scale.handoff().unwrap();
        assert_eq!(
            (handoff.is_set, handoff.is_propagated),
            (is_set, is_propagated)
        );
    }
}

/// RES-2, RES-15
#[test]
fn predictor_deployment_is_chosen_by_name_among_several() {
    let target = inference_service("Standard");
    let of = |name: &str| deployment(&target, name, "predictor");
    let resolved = |target: &Value, names: &[&str]| {
        let made: Vec<_> = names.iter().map(|name| of(name)).collect();
        found(target, &made.iter().collect::<Vec<_>>())
            .workload
            .name
    };
    assert_eq!(
        resolved(&target, &["iris-predictor-worker", "iris-predictor"]),
        "iris-predictor"
    );
    assert_eq!(
        resolved(&target, &["iris-predictor-default"]),
        "iris-predictor-default"
    );
    let named = with(
        target.clone(),
        &json!({"spec": {"predictor": {"name": "blue"}}}),
    );
    assert_eq!(
        resolved(&named, &["iris-predictor", "iris-blue-predictor"]),
        "iris-blue-predictor"
    );
    assert_eq!(
        refuses(&target, &[&of("b"), &of("a")]).message,
        "InferenceService/iris has several workloads: Deployment/a, Deployment/b; set spec.workloadRef to one of them, in a new AsyncActor"
    );
}

/// RES-15
#[test]
fn inference_service_waits_for_its_mode_and_its_deployment() {
    let new = with(inference_service(""), &json!({"status": null}));
    for target in [&new, &inference_service("")] {
        assert_eq!(
            waits(target, &[]),
            "InferenceService/iris: status.deploymentMode is empty; waiting for KServe to set it"
        );
    }
    assert_eq!(
        waits(&inference_service("Standard"), &[]),
        "InferenceService/iris has no predictor Deployment yet; waiting for KServe to create it"
    );
}

/// RES-15
#[test]
fn model_mesh_and_unknown_modes_are_refused() {
    let mesh = "InferenceService/iris: its deployment mode is ModelMesh, whose pods serve other models as well; \
                create a new InferenceService with annotation serving.kserve.io/deploymentMode: Standard";
    let asked =
        json!({"metadata": {"annotations": {"serving.kserve.io/deploymentMode": "ModelMesh"}}});
    for target in [
        inference_service("ModelMesh"),
        with(inference_service(""), &asked),
    ] {
        let finding = Finding::new(FindingReason::UnsupportedTarget, mesh);
        assert_eq!(refuses(&target, &[]), finding);
    }
    assert_eq!(
        refuses(&inference_service("Batch"), &[]).message,
        "InferenceService/iris: status.deploymentMode Batch is unknown; create a new InferenceService with annotation \
         serving.kserve.io/deploymentMode: Standard"
    );
}

/// SO-4, SO-5
#[test]
fn inference_service_scaled_by_kserve_is_not_scaled() {
    let of_class = |class: &str| {
        let annotations = json!({"serving.kserve.io/autoscalerClass": class});
        with(
            inference_service("Standard"),
            &json!({"metadata": {"annotations": annotations}}),
        )
    };
    let own = deployment(
        &inference_service("Standard"),
        "iris-predictor",
        "predictor",
    );
    for class in ["hpa", "keda", "none"] {
        assert_eq!(
            not_scaled(&of_class(class), &[&own]),
            format!(
                "InferenceService/iris: annotation serving.kserve.io/autoscalerClass is {class}, so KServe sets the replicas; set it to external, or set spec.scaling.enabled to false"
            )
        );
    }
    assert_eq!(
        scaled(&of_class("external"), &[&own]),
        "Deployment/iris-predictor"
    );
    let workers = json!({"spec": {"predictor": {"workerSpec": {"pipelineParallelSize": 2}}}});
    assert_eq!(
        not_scaled(&with(of_class("external"), &workers), &[&own]),
        "InferenceService/iris: spec.predictor.workerSpec is set, so its pods are the nodes of one model; set spec.scaling.enabled to false"
    );
}

/// RES-15
#[test]
fn canary_has_a_warning() {
    let own = deployment(
        &inference_service("Standard"),
        "iris-predictor",
        "predictor",
    );
    for canary in [
        json!({"predictor": {"canaryTrafficPercent": 10}}),
        json!({"canary": [{"trafficPercent": 10, "predictor": {"name": "new"}}]}),
    ] {
        let target = with(inference_service("Standard"), &json!({"spec": canary}));
        assert_eq!(
            warnings(&target, &[&own]),
            [(
                CaveatReason::BindingCaveat,
                "InferenceService/iris has a canary: only pods of Deployment/iris-predictor get the sidecar, and \
                 messages do not follow the traffic split; to compare two models, bind another actor to a second \
                 InferenceService".to_owned()
            )]
        );
    }
}

/// RES-15
#[test]
fn protocol_follows_the_model_or_its_server() {
    let own = deployment(
        &inference_service("Standard"),
        "iris-predictor",
        "predictor",
    );
    let adapter = |predictor: Value| {
        let mut target = inference_service("Standard");
        target["spec"]["predictor"] = predictor;
        found(&target, &[&own]).adapter.unwrap()
    };
    assert_eq!(
        adapter(json!({"model": {"protocolVersion": "v2"}})),
        "kserve_v2"
    );
    assert_eq!(adapter(json!({"model": {}})), "kserve_v1");
    assert_eq!(
        adapter(json!({"sklearn": {"protocolVersion": "v2"}})),
        "kserve_v2"
    );
    assert_eq!(
        adapter(json!({"triton": {"storageUri": "gs://m"}})),
        "kserve_v2"
    );

    let of_pod = |image| {
        let containers = [ContainerShape {
            image,
            ..container("kserve-container", None)
        }];
        resolver_of(&inference_service("Standard"))
            .server(&containers, None)
            .adapter
    };
    assert_eq!(of_pod("nvcr.io/nvidia/tritonserver:25.01-py3"), "kserve_v2");
    assert_eq!(of_pod("seldonio/mlserver:1.7.0"), "kserve_v2");
    assert_eq!(of_pod("kserve/sklearnserver:v0.20.0"), "kserve_v1");
}

pub(super) fn on_knative(mode: &str) -> (Value, Vec<Value>) {
    let target = inference_service(mode);
    let mut service = by(&target, knative::service());
    service["metadata"]["name"] = json!("iris-predictor");
    let mut all = knative::below(&service, "iris-predictor", "00002");
    all.extend(knative::below(&service, "iris-predictor", "00001"));
    all.push(service);
    (target, all)
}

/// RES-16, BIND-4
#[test]
fn knative_mode_binds_every_revision() {
    for mode in ["Knative", "Serverless"] {
        let (target, all) = on_knative(mode);
        let all: Vec<_> = all.iter().collect();
        let it = found(&target, &all);
        assert_eq!(it.workload.to_string(), "InferenceService/iris");
        assert_eq!(
            chain(&it),
            [
                "InferenceService/iris",
                "Revision/iris-predictor-00002",
                "Deployment/iris-predictor-00002-deployment"
            ]
        );
        let annotations = vec!["metadata", "annotations"];
        assert_eq!(
            it.roll,
            RolloutMethod::Annotate(it.workload.clone(), annotations)
        );
        assert_eq!(url(&it), "http://127.0.0.1:8080");
        assert_eq!(
            not_scaled(&target, &all),
            "InferenceService/iris: Knative scales it by requests and reverts any other number of pods; create a new \
             InferenceService with annotation serving.kserve.io/deploymentMode: Standard, or set spec.scaling.enabled to false"
        );
        let owner = (
            "apps/v1",
            "ReplicaSet",
            "iris-predictor-00009-deployment-5d8f7c",
        );
        let of_next = [
            PREDICTOR[0],
            PREDICTOR[1],
            ("serving.knative.dev/revision", "iris-predictor-00009"),
        ];
        assert!(has(&it.pods, &of_next, owner));
        assert!(!has(&it.pods, &of_next[..2], owner));
        assert!(!has(&it.pods, &of_next, ("apps/v1", "StatefulSet", "iris")));
    }
}

/// RES-2, RES-16
#[test]
fn knative_mode_requires_the_revision_to_belong_to_the_service() {
    let (target, mut all) = on_knative("Knative");
    all.pop();
    assert_eq!(
        waits(&target, &all.iter().collect::<Vec<_>>()),
        "InferenceService/iris has no Deployment for Revision/iris-predictor-00002 yet; waiting for Knative to create \
         it"
    );
    let none_ready = with(target, &json!({"status": {"components": null}}));
    assert_eq!(
        waits(&none_ready, &[]),
        "InferenceService/iris: status.components.predictor.latestReadyRevision is empty; waiting for the first ready \
         Revision"
    );
}

/// SAFE-24
#[test]
fn stopped_service_is_reported_once_its_workload_is_deleted() {
    let stop = json!({"metadata": {"annotations": {"serving.kserve.io/stop": "true"}}});
    let stopped = with(inference_service("Standard"), &stop);
    let Resolution::Waiting(finding) = resolve(&stopped, &[]) else {
        panic!("it has no workload")
    };
    assert_eq!(finding.reason, FindingReason::TargetStopped);
    assert!(finding.message.contains("serving.kserve.io/stop is true"));
    let own = deployment(&stopped, "iris-predictor", "predictor");
    assert_eq!(found(&stopped, &[&own]).workload.name, "iris-predictor");
    let Resolution::Waiting(finding) = resolve(&inference_service("Standard"), &[]) else {
        panic!("it has no workload")
    };
    assert_eq!(finding.reason, FindingReason::TargetNotReady);
}

/// SAFE-24
#[test]
fn stopped_service_is_reported_whatever_its_mode_and_before_kserve_has_set_one() {
    let stop = json!({"metadata": {"annotations": {"serving.kserve.io/stop": "true"}}});
    let no_mode = with(inference_service("Standard"), &json!({"status": null}));
    let (on_knative, all) = on_knative("Knative");
    let no_revision = with(on_knative.clone(), &json!({"status": {"components": null}}));
    for service in [&no_mode, &on_knative, &no_revision] {
        let reason = |service: &Value, related: &[&Value]| match resolve(service, related) {
            Resolution::Waiting(finding) => finding.reason,
            other => panic!("{other:?}"),
        };
        let stopped = with(service.clone(), &stop);
        assert_eq!(reason(&stopped, &[]), FindingReason::TargetStopped);
        assert_eq!(reason(service, &[]), FindingReason::TargetNotReady);
    }
    let own = deployment(&no_mode, "iris-predictor", "predictor");
    let knative_service = all.iter().find(|it| it["kind"] == "Service").unwrap();
    for (service, made) in [(no_mode, &own), (no_revision, knative_service)] {
        let Resolution::Waiting(finding) = resolve(&with(service, &stop), &[made]) else {
            panic!("its workload is not known")
        };
        assert_eq!(finding.reason, FindingReason::TargetNotReady);
    }
}
