//! Plain workloads with an owner (RES-4).

use serde_json::{Value, json};

use super::objects::{by, chain, object, with, workload};
use super::{kaito, knative, kserve, seldon};
use crate::resolve::*;

fn resolve(target: &Value, owners: &[&Value]) -> Resolution {
    let related = Related {
        owners: owners.iter().map(|it| (*it).clone()).collect(),
        ..Related::default()
    };
    super::objects::resolver_of(target).resolve(target, &related)
}

fn found(target: &Value, owners: &[&Value]) -> Target {
    match resolve(target, owners) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

fn why_not(scale: Scale) -> String {
    match scale {
        Scale::Refused(why) => why,
        scale => panic!("{scale:?}"),
    }
}

/// RES-4
#[test]
fn workload_rolls_and_scales_according_to_its_owner() {
    let owner = kserve::inference_service("Standard");
    let target = kserve::deployment(&owner, "iris-predictor", "predictor");
    let it = found(&target, &[&owner]);
    assert_eq!(chain(&it), ["Deployment/iris-predictor"]);
    let itself = ObjectRef::of(&owner).unwrap();
    assert_eq!(
        it.roll,
        RolloutMethod::Annotate(itself, vec!["metadata", "annotations"])
    );
    assert_eq!(it.scale.object(), Some(&it.workload));
    let handoff = it.scale.handoff().unwrap();
    assert_eq!(handoff.owner, ObjectRef::of(&owner).unwrap());
    assert_eq!(
        it.warnings[0].message,
        "Deployment/iris-predictor belongs to InferenceService/iris: set spec.workloadRef to InferenceService/iris instead, in a new AsyncActor"
    );
    let hpa = json!({"metadata": {"annotations": {"serving.kserve.io/autoscalerClass": "hpa"}}});
    let it = found(&target, &[&with(owner, &hpa)]);
    assert!(why_not(it.scale).contains("autoscalerClass is hpa"));
}

/// RES-4
#[test]
fn workload_of_an_unbindable_owner_is_refused() {
    let owner = kserve::inference_service("ModelMesh");
    let target = kserve::deployment(&owner, "iris-predictor", "predictor");
    let Resolution::Refused(finding) = resolve(&target, &[&owner]) else {
        panic!("not refused");
    };
    assert!(
        finding
            .message
            .starts_with("InferenceService/iris: its deployment mode is ModelMesh")
    );
}

/// RES-4
#[test]
fn workload_other_than_its_owners_server_is_evicted_and_not_scaled() {
    let owner = kserve::inference_service("Standard");
    let target = kserve::deployment(&owner, "iris-transformer", "transformer");
    let it = found(&target, &[&owner]);
    assert_eq!(it.roll, RolloutMethod::Evict);
    assert_eq!(
        why_not(it.scale),
        "Deployment/iris-transformer is not the workload by which InferenceService/iris scales: InferenceService/iris \
         has no predictor Deployment yet; waiting for KServe to create it"
    );
}

/// RES-4
#[test]
fn workload_of_an_unread_owner_is_evicted_and_not_scaled() {
    let owner = kaito::workspace();
    let target = kaito::stateful_set(&owner);
    let message = "StatefulSet/phi belongs to Workspace/phi, which may set its replicas; set spec.workloadRef to Workspace/phi in a new AsyncActor, or set spec.scaling.enabled to false";
    let mut earlier = owner.clone();
    earlier["metadata"]["uid"] = json!("of an earlier Workspace");
    for owners in [&[][..], &[&earlier]] {
        let it = found(&target, owners);
        assert_eq!(it.roll, RolloutMethod::Evict);
        assert_eq!(why_not(it.scale), message);
        assert_eq!(it.warnings.len(), 1);
    }
    let it = found(&target, &[&owner]);
    assert_eq!(it.scale, Scale::Object(it.workload.clone()));
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
    );
}

/// RES-4
#[test]
fn deployment_of_a_revision_follows_the_topmost_service() {
    let service = knative::service();
    let all = knative::below(&service, "hello", "00002");
    let it = found(&all[0], &[&all[1], &all[2], &service]);
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
    );
    assert!(why_not(it.scale).starts_with("Service/hello: Knative scales it"));

    let (inference_service, all) = kserve::on_knative("Knative");
    let service = all.last().unwrap();
    let it = found(&all[0], &[&all[1], &all[2], service, &inference_service]);
    assert!(why_not(it.scale).starts_with("InferenceService/iris: Knative scales it"));
    assert!(
        matches!(it.roll, RolloutMethod::Annotate(object, _) if object.kind == "InferenceService")
    );

    // no owner above the Revision was read
    let it = found(&all[0], &[]);
    assert_eq!(it.roll, RolloutMethod::Evict);
    assert!(matches!(it.scale, Scale::Refused(_)));
}

/// RES-4
#[test]
fn one_of_several_seldon_deployments_is_not_scaled() {
    let further = json!({"status": {"deploymentStatus": {"iris-green-0-classifier": {}}}});
    let owner = with(seldon::seldon(), &further);
    let target = seldon::deployment(&owner, "iris-default-0-classifier");
    let it = found(&target, &[&owner]);
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
    );
    assert!(why_not(it.scale).contains("has several Deployments"));
}

/// RES-4, RES-24
#[test]
fn workload_with_an_unknown_owner_is_bound_itself() {
    let owner = object("example.org/v1", "Thing", "big", &json!({}));
    let containers = json!([{"name": "main", "image": "me/model:1"}]);
    let target = by(
        &owner,
        workload("Deployment", "m", &json!({"app": "m"}), &containers),
    );
    let it = found(&target, &[&owner]);
    assert_eq!(it.scale, Scale::Object(it.workload.clone()));
    assert_eq!(
        it.warnings[0].message,
        "Deployment/m belongs to Thing/big: its owner may revert changes"
    );
}
