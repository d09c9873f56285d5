mod limits;

use std::time::Duration;

use asya_shared::resolve::{AutoscalerHandoff, ObjectRef, Related, Resolution, Scale, resolver};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{HandoffStep, HandoffWrite, after_rollout, evaluate, plan_handoff};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::contention::FieldDecision;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ReplacementMethod, RolloutOutcome, ScalingWait};
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::probe::plan_probe;
use crate::reconcile::plan::rollout::inputs::{RolloutAction, RolloutDecision};
use crate::reconcile::plan::scale_from_zero::plan_scale_from_zero;
use crate::reconcile::plan::scaling::{ScalingPlan, ScalingTeardown};
use crate::reconcile::plan::steps::ScalingStep;
use crate::reconcile::tests::bindings::{binding_to, resolved};
use crate::reconcile::tests::fixtures::{actor, observed};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

fn plan(
    observed: &Observed,
    scaling: Option<&ScalingStep>,
    rollout: Option<&RolloutDecision>,
    now: Timestamp,
) -> Option<HandoffStep> {
    let history = observed.contention_history();
    plan_handoff(observed, history.as_ref(), scaling, rollout, now)
}

/// Scaling as far as this step for the annotation allows it.
fn restricted(scaling: ScalingStep, observed: &Observed, step: &HandoffStep) -> ScalingStep {
    scaling.restricted_by(super::scaling_restriction(observed, step))
}

fn handoff(is_set: bool) -> AutoscalerHandoff {
    let owner = ObjectRef {
        api_version: "serving.kserve.io/v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        name: "iris".to_owned(),
        uid: Some("iris-uid".to_owned()),
    };
    AutoscalerHandoff {
        owner,
        is_set,
        is_propagated: true,
    }
}

fn scaled(fault: Option<Fault>) -> ScalingStep {
    ScalingStep::Enabled(ScalingPlan {
        trigger_authentication: ChildStep::Wait,
        scaled_object: ChildStep::Wait,
        fault,
        waits_for: None,
    })
}

/// No pod has the sidecar yet.
fn unverified() -> ScalingStep {
    match scaled(None) {
        ScalingStep::Enabled(plan) => ScalingStep::Enabled(ScalingPlan {
            waits_for: Some(ScalingWait::Sidecar("the sidecar")),
            ..plan
        }),
        other => other,
    }
}

fn unscaled(completed: bool) -> ScalingStep {
    ScalingStep::Disabled(ScalingTeardown {
        completed,
        ..ScalingTeardown::default()
    })
}

/// Actor `ns/a`, whose target has an owner with or without the handoff annotation.
pub(in crate::reconcile) fn handed_off(is_set: bool, status: &Value) -> Observed {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let deployment = resolver("apps", "Deployment");
    let Resolution::Found(mut target) = deployment.resolve(&object, &Related::default()) else {
        panic!()
    };
    target.scale = Scale::HandedOff(target.workload.clone(), handoff(is_set));
    let mut observed = observed_with(&[], false);
    observed.previous = serde_json::from_value(status.clone()).unwrap();
    observed.binding = Some(binding_to(resolved(*target)).into());
    observed
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// SO-5, ROLL-3
#[test]
fn handoff_is_written_with_a_due_rollout_or_when_none_is_needed() {
    let competing = || Fault::until_change(Reason::RivalAutoscaler, "theirs");
    let wait = RolloutDecision::wait("text");
    let annotate = RolloutDecision::Act(RolloutAction::Annotate("v".to_owned()));
    let on = || scaled(None);
    let off = || unscaled(true);
    for (is_set, scaling, roll, expected) in [
        (
            false,
            on(),
            Some(&RolloutDecision::NotNeeded),
            Some(HandoffStep::Set(FieldDecision::Write)),
        ),
        (
            false,
            on(),
            Some(&annotate),
            Some(HandoffStep::Set(FieldDecision::Write)),
        ),
        (false, unverified(), Some(&RolloutDecision::NotNeeded), None),
        (
            false,
            unverified(),
            Some(&annotate),
            Some(HandoffStep::Set(FieldDecision::Write)),
        ),
        (false, on(), Some(&wait), None),
        (
            false,
            on(),
            Some(&RolloutDecision::Act(RolloutAction::VerifyInjection)),
            None,
        ),
        (
            false,
            on(),
            Some(&RolloutDecision::Halted(String::new())),
            None,
        ),
        (false, on(), None, None),
        (
            false,
            scaled(Some(competing())),
            Some(&RolloutDecision::NotNeeded),
            None,
        ),
        (
            false,
            off(),
            Some(&RolloutDecision::NotNeeded),
            Some(HandoffStep::Set(FieldDecision::Keep)),
        ),
        (
            true,
            on(),
            Some(&RolloutDecision::NotNeeded),
            Some(HandoffStep::Set(FieldDecision::Keep)),
        ),
        (
            true,
            off(),
            Some(&RolloutDecision::NotNeeded),
            Some(HandoffStep::Remove),
        ),
        (true, off(), Some(&annotate), Some(HandoffStep::Remove)),
        (true, off(), Some(&wait), None),
        (
            true,
            unscaled(false),
            Some(&RolloutDecision::NotNeeded),
            Some(HandoffStep::Set(FieldDecision::Keep)),
        ),
    ] {
        let observed = handed_off(is_set, &json!({}));
        let step = plan(&observed, Some(&scaling), roll, now());
        assert_eq!(step, expected, "{is_set}, {scaling:?}, {roll:?}");
    }
    let plain = observed_with(&[], false);
    let step = plan(
        &plain,
        Some(&on()),
        Some(&RolloutDecision::NotNeeded),
        now(),
    );
    assert_eq!(step, None);
}

/// SO-6, CONF-3
#[test]
fn target_without_pods_is_scaled_up_once_its_handoff_is_reverted() {
    let status = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
    let reverted = scaled(Some(super::reverted_fault(&handoff(false))));
    for (is_set, exists, scaling, is_scaled_up) in [
        (false, false, &reverted, true),
        (false, true, &reverted, false),
        (true, false, &reverted, false),
        (false, false, &scaled(None), false),
    ] {
        let mut observed = handed_off(is_set, &status);
        if exists {
            observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
        }
        let no_rollout = Some(&RolloutDecision::NotNeeded);
        let step =
            plan_scale_from_zero(&observed, Some(scaling), no_rollout, &plan_probe(&observed));
        assert_eq!(
            step.is_some(),
            is_scaled_up,
            "{is_set}, {exists}, {scaling:?}"
        );
    }
}

/// CONF-3
#[test]
fn reverted_handoff_is_rewritten_with_backoff_until_the_fifth_conflict() {
    let entry = |state: &str, conflicts: i32| {
        json!({"conflicts": [{
            "part": "Autoscaler", "uid": "web-uid", "object": "InferenceService/iris", "field": "f", "count": conflicts,
            "state": state, "losses": conflicts, "retryTime": "2026-01-01T00:10:30Z", "generation": 2, "target": "spec",
            "lastTime": "2026-01-01T00:09:00Z",
        }]})
    };
    let no_rollout = Some(&RolloutDecision::NotNeeded);
    let mut lost = handed_off(false, &json!({}));
    lost.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let scaling = ScalingStep::Blocked(
        ScalingTeardown::default(),
        super::reverted_fault(&handoff(false)),
    );
    let step = plan(&lost, Some(&scaling), no_rollout, now());
    assert!(
        matches!(step, Some(HandoffStep::Set(FieldDecision::RecordConflict))),
        "{step:?}"
    );

    for (state, conflicts, at, expected) in [
        (
            "Waiting",
            1,
            now(),
            HandoffStep::Set(FieldDecision::Wait(Duration::from_secs(30))),
        ),
        (
            "Waiting",
            1,
            "2026-01-01T00:10:30Z".parse().unwrap(),
            HandoffStep::Set(FieldDecision::Write),
        ),
        ("Stopped", 5, now(), HandoffStep::Set(FieldDecision::Yield)),
    ] {
        let observed = handed_off(false, &entry(state, conflicts));
        let step = plan(&observed, Some(&scaled(None)), no_rollout, at);
        let scaling = restricted(scaled(None), &observed, step.as_ref().unwrap());
        let has_fault = scaling.fault().map(|it| it.reason) == Some(Reason::RivalAutoscaler);
        assert_eq!(
            has_fault,
            expected != HandoffStep::Set(FieldDecision::Write),
            "{state}"
        );
        assert_eq!(step, Some(expected));
    }
    // Another manager removed the annotation before KEDA could act.
    let mut reverted = json!({"claimed": "web-uid"});
    for (status, is_lost) in [
        (reverted.clone(), true),
        (json!({"claimed": "another"}), false),
        (json!({}), false),
    ] {
        let step = plan(
            &handed_off(false, &status),
            Some(&scaled(None)),
            no_rollout,
            now(),
        );
        let lost = matches!(step, Some(HandoffStep::Set(FieldDecision::RecordConflict)));
        assert_eq!(lost, is_lost, "{status}: {step:?}");
    }
    reverted["conflicts"] = entry("Held", 4)["conflicts"].clone();
    let observed = handed_off(false, &reverted);
    let step = plan(&observed, Some(&scaled(None)), no_rollout, now());
    let lost = matches!(step, Some(HandoffStep::Set(FieldDecision::RecordConflict)));
    assert!(lost, "{step:?}");
    let scaling = restricted(scaled(None), &observed, &step.unwrap());
    let reason = scaling.fault().map(|it| it.reason);
    assert_eq!(reason, Some(Reason::RivalAutoscaler));

    let rewritten = handed_off(true, &entry("Held", 1));
    let step = plan(&rewritten, Some(&scaled(None)), no_rollout, now());
    assert_eq!(
        step,
        Some(HandoffStep::Set(FieldDecision::AwaitReset(
            Duration::from_mins(14)
        )))
    );
}

fn observed_with(hpas: &[Value], has_scaled_object: bool) -> Observed {
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true},
        "workloadRef": {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "iris"},
    });
    let mut observed = observed(&actor(&json!({}), &spec, &json!({})));
    observed.scaling.hpas = hpas.iter().map(hpa).collect();
    if has_scaled_object {
        observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    }
    observed
}

/// SO-5, ROLL-3
#[test]
fn handoff_is_written_by_the_rollout_or_separately_if_none_is_needed() {
    let text = || "text".to_owned();
    let waiting = RolloutOutcome::waiting(Reason::RolloutWaiting, text(), Requeue::AwaitChange);
    for (outcome, expected) in [
        (
            RolloutOutcome::Requested(ReplacementMethod::Annotation),
            HandoffWrite::WithRollout,
        ),
        (RolloutOutcome::NotNeeded, HandoffWrite::Separately),
        (RolloutOutcome::NotChecked, HandoffWrite::Skipped),
        (RolloutOutcome::NoPodsYet, HandoffWrite::Skipped),
        (RolloutOutcome::Halted(text()), HandoffWrite::Skipped),
        (waiting, HandoffWrite::Skipped),
    ] {
        assert_eq!(after_rollout(&outcome), expected, "{outcome:?}");
    }
}

/// SO-5, CONF-3
#[test]
fn queue_scales_only_after_the_owners_autoscaler_is_deleted() {
    let owned = |uid: &str| {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "iris", "uid": uid, "controller": true,
        }]}})
    };
    for (is_set, hpas, has_scaled_object, (others, pending, lost)) in [
        (false, vec![], false, (0, true, false)),
        (true, vec![owned("iris-uid")], false, (0, true, false)),
        (true, vec![], false, (0, false, false)),
        (true, vec![], true, (0, false, false)),
        (true, vec![owned("other")], false, (1, false, false)),
        (true, vec![owned("iris-uid")], true, (0, true, true)),
        (false, vec![], true, (0, true, true)),
    ] {
        let observed = observed_with(&hpas, has_scaled_object);
        let state = evaluate(&observed, Some(&handoff(is_set)));
        assert_eq!(
            (
                state.other_hpas.len(),
                state.is_pending,
                state.fault.is_some()
            ),
            (others, pending, lost),
            "{is_set}, {hpas:?}, {has_scaled_object}"
        );
    }
    let plain = evaluate(&observed_with(&[owned("iris-uid")], true), None);
    assert_eq!((plain.other_hpas.len(), plain.is_pending), (1, false));
}
