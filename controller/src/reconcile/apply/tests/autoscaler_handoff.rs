//! Handoff of autoscaling to the queue.

use super::*;
use crate::reconcile::apply::autoscaler_handoff::write_handoff;
use crate::reconcile::contention::FieldDecision;
use crate::reconcile::model::outcome::BindingOutcome;
use crate::reconcile::plan::autoscaler_handoff::tests::handed_off;
use crate::reconcile::plan::autoscaler_handoff::{HandoffBlocker, HandoffStep};
use crate::reconcile::status;

const OWNER: &str = "/apis/serving.kserve.io/v1beta1/namespaces/ns/inferenceservices/iris";

/// Another manager owns the annotation.
fn owned_annotation(request: &str) -> Option<(u16, Value)> {
    let cause = json!({
        "reason": "FieldManagerConflict",
        "message": "conflict with \"platform\" using serving.kserve.io/v1beta1",
        "field": ".metadata.annotations.serving.kserve.io/autoscalerClass",
    });
    match request.split_once(' ')? {
        ("GET", OWNER) => Some((
            200,
            json!({
                "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService",
                "metadata": {"name": "iris", "namespace": "ns", "uid": "iris-uid", "resourceVersion": "1"},
            }),
        )),
        ("PATCH", OWNER) => Some((
            409,
            json!({
                "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
                "message": "Apply failed with 1 conflict", "details": {"causes": [cause]},
            }),
        )),
        _ => None,
    }
}

/// CONF-3, CONF-7
#[tokio::test]
async fn conflict_over_the_handoff_annotation_names_the_field_and_its_manager() {
    let context = context_with(owned_annotation);
    let kind = GroupVersionKind::gvk("serving.kserve.io", "v1beta1", "InferenceService");
    let resource = ApiResource::from_gvk(&kind);
    let kinds = &context.bindings.kinds;
    kinds.serve("serving.kserve.io", "InferenceService", resource);
    let observed = handed_off(false, &json!({}));
    let plan = plan(&observed, Timestamp::now()).active().binding();
    let mut outcome = BindingOutcome {
        rollout: RolloutOutcome::NotNeeded,
        ..BindingOutcome::default()
    };
    let step = HandoffStep::Set(FieldDecision::Write);
    write_handoff(
        &context,
        &observed.key().namespace,
        step,
        &plan.contested,
        &mut outcome,
    )
    .await
    .unwrap();
    assert_eq!(outcome.contention.handoff, None);

    let outcome = Outcome::Active(outcome.into());
    let report = status::build(&observed, &outcome, Timestamp::now()).unwrap();
    assert_eq!(report.requeue, Requeue::After(Duration::ZERO));
    let mut conditions = report.status.conditions.iter();
    let conflict = conditions
        .find(|condition| condition.type_ == "Conflict")
        .unwrap();
    assert_eq!(
        (&*conflict.status, &*conflict.reason),
        ("True", "BindingConflict")
    );
    for text in ["InferenceService/iris", "platform", "autoscalerClass"] {
        assert!(conflict.message.contains(text), "{}", conflict.message);
    }
    let entry = &report.status.conflicts[0];
    assert_eq!((&*entry.part, &*entry.state), ("Autoscaler", "Waiting"));
}

/// SO-5: it is planned anew once the pods may be replaced.
#[tokio::test]
async fn handoff_that_has_to_wait_writes_nothing_and_is_checked_again() {
    let context = context_with(|_| None);
    let observed = handed_off(false, &json!({}));
    let plan = plan(&observed, Timestamp::now()).active().binding();
    let mut outcome = BindingOutcome {
        rollout: RolloutOutcome::NotNeeded,
        ..BindingOutcome::default()
    };
    let step = HandoffStep::Blocked(HandoffBlocker::Rollout("the budget".to_owned()));
    let namespace = &observed.key().namespace;
    write_handoff(&context, namespace, step, &plan.contested, &mut outcome)
        .await
        .unwrap();
    assert_eq!(outcome.contention.handoff, None);
    let recheck = outcome.contention.recheck_after;
    assert_eq!(recheck, Some(Duration::from_secs(10)));
}
