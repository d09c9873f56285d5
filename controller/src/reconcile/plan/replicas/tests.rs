use std::time::Duration;

use asya_shared::api::BindingConflict;
use asya_shared::resolve::{Claim, ObjectRef, Scale};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::reconcile::contention::Specs;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::contest::tests::{applied, at};
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::plan;
use crate::scaling::tests::fixtures::hpa;

/// A target of one pod, of which the HPA wants `desired`.
fn asked(desired: i32, conflicts: Vec<BindingConflict>) -> Observed {
    let mut seen = applied(false, conflicts);
    seen.scaling.hpas = vec![hpa(&asks("web", desired))];
    seen
}

/// An HPA of the Deployment of this name.
fn asks(target: &str, desired: i32) -> Value {
    json!({"spec": {"scaleTargetRef": {"name": target}}, "status": {"desiredReplicas": desired}})
}

fn planned(seen: &Observed, now: i64) -> FieldDecision {
    match plan(seen, at(now)) {
        Plan::Bind(plan) => plan.replicas.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn entry(state: &str, losses: i32, target: &str) -> Vec<BindingConflict> {
    vec![BindingConflict {
        part: "Replicas".to_owned(),
        uid: "web-uid".to_owned(),
        state: state.to_owned(),
        losses,
        last_time: Some(Time(at(1000))),
        retry_time: (state == "Waiting").then(|| Time(at(1010))),
        generation: (state == "Stopped").then_some(2),
        target: target.to_owned(),
        ..BindingConflict::default()
    }]
}

/// CONF-4
#[test]
fn replicas_that_differ_from_the_hpa_are_counted_as_losses_with_backoff() {
    let suspect = FieldDecision::Lost(Specs {
        generation: 2,
        target: "spec".to_owned(),
    });
    let wait = |seconds| Duration::from_secs(seconds);
    let waiting = || entry("Waiting", 2, "");
    for (desired, entries, now, wanted) in [
        (1, vec![], 1000, FieldDecision::Over),
        (3, vec![], 1000, suspect.clone()),
        (0, vec![], 1000, FieldDecision::Over),
        (3, waiting(), 1004, FieldDecision::Wait(wait(6))),
        (3, waiting(), 1010, suspect),
        (1, waiting(), 1004, FieldDecision::Stands(wait(896))),
        (1, waiting(), 1900, FieldDecision::Over),
        (3, entry("Stopped", 5, "spec"), 1000, FieldDecision::Stop),
        (1, entry("Stopped", 5, "spec"), 1000, FieldDecision::Stop),
        (3, entry("Stopped", 5, "other"), 1000, FieldDecision::Over),
    ] {
        let row = format!("{desired} are asked for, {entries:?}, at {now}");
        assert_eq!(planned(&asked(desired, entries), now), wanted, "{row}");
    }
}

/// SAFE-26
#[test]
fn hpa_of_an_earlier_workload_is_not_compared() {
    let mut seen = asked(3, vec![]);
    assert!(matches!(planned(&seen, 1000), FieldDecision::Lost(_)));
    seen.scaling.hpas = vec![hpa(&asks("web-before-its-canary-was-promoted", 3))];
    assert_eq!(planned(&seen, 1000), FieldDecision::Over);
}

/// CONF-4, SO-5
#[test]
fn replicas_of_a_claimed_target_are_compared_too() {
    let claimed = |is_made| {
        let mut seen = asked(3, vec![]);
        let resolved = seen.binding.as_mut().unwrap().target.as_mut().unwrap();
        let target = &mut resolved.as_mut().unwrap().target;
        let owner = target.workload.clone();
        target.scale = Scale::Claimed(
            target.workload.clone(),
            Claim {
                owner,
                is_made,
                is_followed: true,
            },
        );
        planned(&seen, 1000)
    };
    assert!(matches!(claimed(true), FieldDecision::Lost(_)));
    assert_eq!(
        claimed(false),
        FieldDecision::Over,
        "the owner's autoscaler is there"
    );
}

/// CONF-4, SO-1
#[test]
fn replicas_of_a_workload_below_the_scale_target_belong_to_its_owner() {
    let mut seen = asked(3, vec![]);
    let resolved = seen.binding.as_mut().unwrap().target.as_mut().unwrap();
    let target = &mut resolved.as_mut().unwrap().target;
    let above = ObjectRef {
        kind: "InferenceSet".to_owned(),
        ..target.workload.clone()
    };
    target.scale = Scale::Object(above);
    assert_eq!(planned(&seen, 1000), FieldDecision::Over);
}

/// CONF-4, KEDA-9
#[test]
fn replicas_are_uncontested_without_an_hpa_of_ours_or_at_zero() {
    let mut no_hpa = asked(3, vec![]);
    no_hpa.scaling.hpas = Vec::new();
    assert_eq!(planned(&no_hpa, 0), FieldDecision::Over);
    let mut asleep = asked(3, vec![]);
    let target = asleep.binding.as_mut().unwrap().target.as_mut().unwrap();
    target.as_mut().unwrap().replicas = Some(0);
    assert_eq!(planned(&asleep, 0), FieldDecision::Over, "that is KEDA's");
}
