use serde_json::{Value, json};

use super::objects::*;
use crate::resolve::*;

const V: &str = "serving.knative.dev/v1";

pub(super) fn service() -> Value {
    object(
        V,
        "Service",
        "hello",
        &json!({
            "spec": {"template": {"spec": {"containers": [{"image": "me/model:1", "ports": [{"containerPort": 9999}]}]}}},
            "status": {"latestReadyRevisionName": "hello-00002", "latestCreatedRevisionName": "hello-00002", "observedGeneration": 2},
        }),
    )
}

/// The Configuration, Revision and Deployment of the Revision with this number.
pub(super) fn below(service: &Value, name: &str, number: &str) -> Vec<Value> {
    let configuration = by(service, object(V, "Configuration", name, &json!({})));
    let revision = format!("{name}-{number}");
    let made = by(&configuration, object(V, "Revision", &revision, &json!({})));
    let labels =
        json!({"serving.knative.dev/service": name, "serving.knative.dev/revision": revision});
    let containers = json!([
        {"name": "user-container", "image": "me/model:1", "ports": [{"name": "user-port", "containerPort": 9999}]},
        {"name": "queue-proxy", "image": "knative/queue:1", "ports": [{"containerPort": 8022}]},
    ]);
    let mut deployment = by(
        &made,
        workload(
            "Deployment",
            &format!("{revision}-deployment"),
            &labels,
            &containers,
        ),
    );
    deployment["metadata"]["labels"] = json!({"serving.knative.dev/deployment-hash": "abc"});
    vec![deployment, made, configuration]
}

/// RES-2, RES-20, BIND-4
#[test]
fn knative_service_covers_all_its_revisions() {
    let target = service();
    let mut all = below(&target, "hello", "00001");
    all.extend(below(&target, "hello", "00002"));
    let all: Vec<_> = all.iter().collect();
    let it = found(&target, &all);
    assert_eq!(it.workload.to_string(), "Service/hello");
    assert_eq!(
        chain(&it),
        [
            "Service/hello",
            "Revision/hello-00002",
            "Deployment/hello-00002-deployment"
        ]
    );
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.chain[2].clone()])
    );
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:9999", "rest")
    );
    assert_eq!(
        not_scaled(&target, &all),
        "Service/hello: Knative scales it by requests and reverts any other number of pods; keep pods with annotation \
         autoscaling.knative.dev/min-scale in spec.template, and set spec.scaling.enabled to false"
    );
    let label = [("serving.knative.dev/service", "hello")];
    for pods in [it.pods, unresolved_pods(&target)] {
        assert!(has(
            &pods,
            &label,
            ("apps/v1", "ReplicaSet", "hello-00003-deployment-5d8f7c")
        ));
        assert!(!has(
            &pods,
            &[],
            ("apps/v1", "ReplicaSet", "hello-00003-deployment-5d8f7c")
        ));
        assert!(!has(&pods, &label, ("apps/v1", "StatefulSet", "hello")));
    }
}

/// RES-20
#[test]
fn knative_service_waits_for_a_ready_revision_that_it_owns() {
    let target = service();
    let mut all = below(&target, "hello", "00002");
    all[2]["metadata"]["ownerReferences"][1]["uid"] = json!("of an earlier Service");
    assert_eq!(
        waits(&target, &all.iter().collect::<Vec<_>>()),
        "Service/hello has no Deployment for Revision/hello-00002 yet; waiting for Knative to create it"
    );
    let new = with(
        target,
        &json!({"status": {"latestReadyRevisionName": null}}),
    );
    assert_eq!(
        waits(&new, &[]),
        "Service/hello: status.latestReadyRevisionName is empty; waiting for the first ready Revision"
    );
}

/// RES-20, ROLL-3
#[test]
fn before_knative_1_22_pods_roll_by_a_new_revision_or_by_eviction() {
    let target = service();
    let mut all = below(&target, "hello", "00002");
    all[0]["metadata"]["labels"] = json!(null);
    let all: Vec<_> = all.iter().collect();
    let it = found(&target, &all);
    let path = vec!["spec", "template", "metadata", "annotations"];
    assert_eq!(it.roll, RolloutMethod::Annotate(it.workload.clone(), path));
    let named = json!({"spec": {"template": {"metadata": {"name": "hello-00002"}}}});
    assert_eq!(
        found(&with(target, &named), &all).roll,
        RolloutMethod::Evict
    );
}

/// RES-20
#[test]
fn port_is_the_models_and_not_that_of_the_queue_proxy() {
    let server = |containers: &[_]| {
        resolver_of(&service())
            .server(containers, None)
            .url
            .unwrap()
    };
    let proxy = container("queue-proxy", Some(8022));
    assert_eq!(
        server(&[proxy, container("user-container", Some(9999))]),
        "http://127.0.0.1:9999"
    );
    assert_eq!(
        server(&[container("user-container", None)]),
        "http://127.0.0.1:8080"
    );
}

/// RES-4
#[test]
fn knative_service_of_kserve_advises_to_bind_the_inference_service() {
    let owner = object(
        "serving.kserve.io/v1beta1",
        "InferenceService",
        "iris",
        &json!({}),
    );
    let target = by(&owner, service());
    let all = below(&target, "hello", "00002");
    assert_eq!(
        warnings(&target, &all.iter().collect::<Vec<_>>())[0].1,
        "Service/hello belongs to InferenceService/iris: set spec.workloadRef to InferenceService/iris instead, in a new AsyncActor"
    );
}
