use serde_json::{Value, json};

use super::{Recreation, WorkloadFacts, after_invalid_update};
use crate::cluster::workload::SELECTOR;
use crate::fault::{Fault, Reason, Requeue, StepError};
use crate::reconcile::model::child::{Child, UNSEEN};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

fn seen(annotations: &Value) -> Observed {
    let metadata = json!({"annotations": annotations});
    observed(&actor(&metadata, &spec(&json!({})), &json!({})))
}

/// FW-22
#[test]
fn workload_is_recreated_only_if_the_actor_allows_it_and_with_its_pods_only_for_another_selector() {
    let (refused, allowed) = (
        seen(&json!({})),
        seen(&json!({"asya.sh/allow-recreate": "true"})),
    );
    let fields = |field: &str| vec![field.to_owned()];
    for (seen, fields, wanted) in [
        (&allowed, Vec::new(), "NotCause"),
        (&refused, fields(SELECTOR), "NotAllowed"),
        (&refused, fields("spec.serviceName"), "NotAllowed"),
        (&allowed, fields(SELECTOR), "WithPods"),
        (&allowed, fields("spec.serviceName"), "LeavingPods"),
    ] {
        let found = workload(&deployment(seen));
        let name = match after_invalid_update(&seen.actor, &found, &fields) {
            Recreation::NotCause => "NotCause",
            Recreation::NotAllowed(fault) => {
                assert_eq!(fault.retry, Requeue::SlowBackoff);
                assert!(fault.message.contains("asya.sh/allow-recreate"));
                "NotAllowed"
            }
            Recreation::WithPods(_) => "WithPods",
            Recreation::LeavingPods(_) => "LeavingPods",
        };
        assert_eq!(name, wanted, "{fields:?}");
    }
}

/// FW-22: a workload that no watch shows was created by another controller and taken over.
#[test]
fn deletion_of_a_recreated_workload_is_watched_or_polled() {
    let seen = seen(&json!({"asya.sh/allow-recreate": "true"}));
    let mut object = deployment(&seen);
    let retry = |object: &Value| {
        let fields = ["spec.serviceName".to_owned()];
        match after_invalid_update(&seen.actor, &workload(object), &fields) {
            Recreation::LeavingPods(fault) => fault.retry,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(retry(&object), Requeue::AwaitChange);
    object["metadata"]["labels"] = json!({});
    assert_eq!(retry(&object), Requeue::After(UNSEEN));
}

/// SA-3
#[test]
fn rejected_creation_continues_with_our_own_object_only() {
    let seen = seen(&json!({}));
    let facts = WorkloadFacts {
        actor: &seen.actor,
        own: seen.standalone().unwrap(),
        applied: None,
    };
    let rejection = || StepError::Refused(Fault::until_change(Reason::ReconcileError, "no"));
    let after = |found| facts.after_rejected_creation(&found, rejection());
    let reason = |found| after(found).unwrap_err().fault().unwrap().reason;
    assert_eq!(reason(Child::Absent), Reason::ReconcileError);
    let mut object = deployment(&seen);
    let found = workload(&object);
    assert_eq!(reason(Child::Foreign(found.clone())), Reason::NotOwned);
    let step = after(Child::Ours(found)).unwrap();
    assert!(matches!(step, WorkloadStep::Update { .. }), "{step:?}");
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let step = after(Child::Ours(workload(&object))).unwrap();
    assert_eq!(step, WorkloadStep::Keep, "its deletion is awaited");
}
