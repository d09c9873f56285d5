use std::time::Duration;

use asya_shared::api::ConflictStatus;
use asya_shared::resolve::{AutoscalerHandoff, ObjectRef, Scale};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::reconcile::contention::FieldDecision;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::plan;
use crate::reconcile::plan::scaled_object_contention::tests::{applied, at};
use crate::scaling::tests::fixtures::hpa;

/// A target with one pod, for which the HPA desires this number.
fn with_hpa(desired: i32, conflicts: Vec<ConflictStatus>) -> Observed {
    let mut observed = applied(false, conflicts);
    observed.scaling.hpas = vec![hpa(&hpa_for("web", desired))];
    observed
}

/// An HPA that scales the Deployment of this name.
fn hpa_for(target: &str, desired: i32) -> Value {
    json!({"spec": {"scaleTargetRef": {"name": target}}, "status": {"desiredReplicas": desired}})
}

fn planned(observed: &Observed, now: i64) -> FieldDecision {
    plan(observed, at(now))
        .active()
        .binding()
        .target
        .replicas_contention
        .unwrap()
}

fn entry(state: &str, conflicts: i32, target: &str) -> Vec<ConflictStatus> {
    vec![ConflictStatus {
        part: "Replicas".to_owned(),
        uid: "web-uid".to_owned(),
        state: state.to_owned(),
        consecutive_conflicts: conflicts,
        last_time: Some(Time(at(1000))),
        retry_time: (state == "Waiting").then(|| Time(at(1010))),
        generation: (state == "Stopped").then_some(2),
        spec_hash: target.to_owned(),
        ..ConflictStatus::default()
    }]
}

/// CONF-4
#[test]
fn replicas_that_differ_from_the_hpa_are_counted_as_conflicts_with_backoff() {
    let wait = |seconds| Duration::from_secs(seconds);
    let waiting = || entry("Waiting", 2, "");
    for (desired, entries, now, expected) in [
        (1, vec![], 1000, FieldDecision::Keep),
        (3, vec![], 1000, FieldDecision::RecordConflict),
        (0, vec![], 1000, FieldDecision::Keep),
        (3, waiting(), 1004, FieldDecision::Wait(wait(6))),
        (3, waiting(), 1010, FieldDecision::RecordConflict),
        (1, waiting(), 1004, FieldDecision::AwaitReset(wait(896))),
        (1, waiting(), 1900, FieldDecision::Keep),
        (3, entry("Stopped", 5, "spec"), 1000, FieldDecision::Yield),
        (1, entry("Stopped", 5, "spec"), 1000, FieldDecision::Yield),
        (3, entry("Stopped", 5, "other"), 1000, FieldDecision::Keep),
    ] {
        let case = format!("{desired} desired, {entries:?}, at {now}");
        assert_eq!(
            planned(&with_hpa(desired, entries), now),
            expected,
            "{case}"
        );
    }
}

/// SAFE-26
#[test]
fn hpa_of_an_earlier_workload_is_not_compared() {
    let mut observed = with_hpa(3, vec![]);
    assert!(matches!(
        planned(&observed, 1000),
        FieldDecision::RecordConflict
    ));
    observed.scaling.hpas = vec![hpa(&hpa_for("web-before-its-canary-was-promoted", 3))];
    assert_eq!(planned(&observed, 1000), FieldDecision::Keep);
}

/// CONF-4, SO-5
#[test]
fn replicas_of_a_handed_off_target_are_compared_too() {
    let handed_off = |is_set| {
        let mut observed = with_hpa(3, vec![]);
        let target = &mut observed.resolved_mut().target.target;
        let owner = target.workload.clone();
        target.scale = Scale::HandedOff(
            target.workload.clone(),
            AutoscalerHandoff {
                owner,
                is_set,
                is_propagated: true,
            },
        );
        planned(&observed, 1000)
    };
    assert!(matches!(handed_off(true), FieldDecision::RecordConflict));
    assert_eq!(
        handed_off(false),
        FieldDecision::Keep,
        "the owner's autoscaler is active"
    );
}

/// CONF-4, SO-1
#[test]
fn replicas_of_a_workload_below_the_scale_target_belong_to_its_owner() {
    let mut observed = with_hpa(3, vec![]);
    let target = &mut observed.resolved_mut().target.target;
    let owner = ObjectRef {
        kind: "InferenceSet".to_owned(),
        ..target.workload.clone()
    };
    target.scale = Scale::Object(owner);
    assert_eq!(planned(&observed, 1000), FieldDecision::Keep);
}

/// CONF-4, KEDA-9
#[test]
fn replicas_are_uncontested_without_an_hpa_of_ours_or_at_zero() {
    let mut no_hpa = with_hpa(3, vec![]);
    no_hpa.scaling.hpas = Vec::new();
    assert_eq!(planned(&no_hpa, 0), FieldDecision::Keep);
    let mut at_zero = with_hpa(3, vec![]);
    at_zero.resolved_mut().target.replicas = Some(0);
    assert_eq!(planned(&at_zero, 0), FieldDecision::Keep, "set by KEDA");
}
