use serde_json::{Value, json};

use super::{Recreation, WorkloadInputs};
use crate::cluster::workload::SELECTOR;
use crate::fault::{Fault, Reason, Requeue, StepError};
use crate::reconcile::model::child::{Child, UNWATCHED_POLL_INTERVAL};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

fn observed_with(annotations: &Value) -> Observed {
    let metadata = json!({"annotations": annotations});
    observed(&actor(&metadata, &spec(&json!({})), &json!({})))
}

fn inputs(observed: &Observed) -> WorkloadInputs<'_> {
    WorkloadInputs {
        ownership: &observed.ownership,
        standalone: observed.standalone().unwrap(),
        applied: None,
    }
}

/// FW-22
#[test]
fn workload_is_recreated_only_if_allowed_and_with_its_pods_only_if_the_selector_changes() {
    let refused = observed_with(&json!({}));
    let allowed = observed_with(&json!({"asya.sh/allow-recreate": "true"}));
    let fields = |field: &str| vec![field.to_owned()];
    for (observed, fields, expected) in [
        (&allowed, Vec::new(), "NotNeeded"),
        (&refused, fields(SELECTOR), "NotAllowed"),
        (&refused, fields("spec.serviceName"), "NotAllowed"),
        (&allowed, fields(SELECTOR), "WithPods"),
        (&allowed, fields("spec.serviceName"), "LeavingPods"),
    ] {
        let existing = workload(&deployment(observed));
        let recreation = inputs(observed).after_invalid_update(&existing, &fields);
        let deletes = recreation.deletes();
        let recreation = match recreation {
            Recreation::NotNeeded => "NotNeeded",
            Recreation::NotAllowed(fault) => {
                assert_eq!(fault.requeue, Requeue::SlowBackoff);
                assert!(fault.message.contains("asya.sh/allow-recreate"));
                "NotAllowed"
            }
            Recreation::WithPods(_) => "WithPods",
            Recreation::LeavingPods(_) => "LeavingPods",
        };
        assert_eq!(recreation, expected, "{fields:?}");
        assert_eq!(deletes, ["WithPods", "LeavingPods"].contains(&expected));
    }
}

/// FW-22: an unwatched workload was created by another controller and adopted.
#[test]
fn deletion_of_a_recreated_workload_is_watched_or_polled() {
    let observed = observed_with(&json!({"asya.sh/allow-recreate": "true"}));
    let mut object = deployment(&observed);
    let requeue = |object: &Value| {
        let fields = ["spec.serviceName".to_owned()];
        match inputs(&observed).after_invalid_update(&workload(object), &fields) {
            Recreation::LeavingPods(fault) => fault.requeue,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(requeue(&object), Requeue::AwaitChange);
    object["metadata"]["labels"] = json!({});
    assert_eq!(requeue(&object), Requeue::After(UNWATCHED_POLL_INTERVAL));
}

/// SA-3
#[test]
fn rejected_creation_continues_with_our_own_object_only() {
    let observed = observed_with(&json!({}));
    let inputs = inputs(&observed);
    let rejection = || StepError::Fault(Fault::until_change(Reason::ReconcileError, "no"));
    let after = |existing| inputs.after_rejected_creation(&existing, rejection());
    let reason = |existing| after(existing).unwrap_err().fault().unwrap().reason;
    assert_eq!(reason(Child::NotFound), Reason::ReconcileError);
    let mut object = deployment(&observed);
    let existing = workload(&object);
    assert_eq!(reason(Child::Foreign(existing.clone())), Reason::NotOwned);
    let step = after(Child::Ours(existing)).unwrap();
    assert!(matches!(step, WorkloadStep::Update(_)), "{step:?}");
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let step = after(Child::Ours(workload(&object))).unwrap();
    assert_eq!(step, WorkloadStep::Keep, "its deletion is awaited");
}
