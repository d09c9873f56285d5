use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, ConflictStatus, InventoryEntry};
use asya_shared::resolve::{Related, Resolution, resolver};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::reconcile::contention::FieldDecision;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::observe::binding::target_scaling;
use crate::reconcile::plan::steps::ScalingStep;
use crate::reconcile::plan::{ChildStep, plan};
use crate::reconcile::tests::bindings::{binding_to, resolved};
use crate::reconcile::tests::fixtures::{actor, observed, verified_status};
use crate::scaling::tests::fixtures::scaled_object;

const APPLY: ChildStep = ChildStep::Apply { take_over: None };

pub(in crate::reconcile::plan) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A binding whose `ScaledObject` was applied and may have been `changed` since, with these conflicts in status.
pub(in crate::reconcile::plan) fn applied(
    changed: bool,
    conflicts: Vec<ConflictStatus>,
) -> Observed {
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true},
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let mut observed = observed(&actor(&json!({}), &spec, &json!({})));
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let resolution = resolver("apps", "Deployment").resolve(&object, &Related::default());
    let Resolution::Found(target) = resolution else {
        panic!()
    };
    let desired = observed.desired.as_ref().unwrap();
    let resolved = resolved(*target);
    let scaling = target_scaling(&observed.actor, &observed.previous, desired, &resolved);
    let mut binding = binding_to(resolved);
    binding.injection.pods = Some(TargetPods::default());
    binding.scaling = scaling;
    observed.binding = Some(binding.into());
    let hash = observed.scaling_objects().unwrap().unwrap();
    let hash = hash.scaled_object.hash.clone();
    let annotations = json!({"metadata": {"annotations": {"asya.sh/applied-hash": hash}}});
    let existing = scaled_object(&annotations);
    let fingerprint = existing.last_applied.fingerprint.unwrap().to_string();
    observed.scaling.scaled_object = Child::Ours(existing);
    observed.previous = AsyncActorStatus {
        conflicts,
        inventory: vec![InventoryEntry {
            kind: "ScaledObject".to_owned(),
            name: "a".to_owned(),
            uid: Some("u-so".to_owned()),
            hash: Some(hash),
            fingerprint: Some(if changed {
                "other".to_owned()
            } else {
                fingerprint
            }),
            ..InventoryEntry::default()
        }],
        ..serde_json::from_value(verified_status()).unwrap()
    };
    observed
}

fn planned(observed: &Observed, now: Timestamp) -> (FieldDecision, ChildStep) {
    let plan = plan(observed, now).active();
    let step = match &plan.common.scaling {
        Some(ScalingStep::Enabled(plan)) => plan.scaled_object.clone(),
        other => panic!("{other:?}"),
    };
    (
        plan.binding().target.scaled_object_contention.unwrap(),
        step,
    )
}

/// A conflict in status, last at 1000.
fn entry(state: &str, conflicts: i32) -> ConflictStatus {
    ConflictStatus {
        part: "ScaledObject".to_owned(),
        uid: "web-uid".to_owned(),
        state: state.to_owned(),
        count: conflicts.into(),
        consecutive_conflicts: conflicts,
        last_time: Some(Time(at(1000))),
        retry_time: (state == "Waiting").then(|| Time(at(1010))),
        generation: (state == "Stopped").then_some(2),
        spec_hash: "spec".to_owned(),
        ..ConflictStatus::default()
    }
}

/// CONF-5
#[test]
fn contested_scaled_object_is_reapplied_with_backoff_until_stopped() {
    let wait = |seconds| Duration::from_secs(seconds);
    for (changed, entries, now, decision, step) in [
        (false, vec![], 1000, FieldDecision::Keep, ChildStep::Keep),
        (
            true,
            vec![],
            1000,
            FieldDecision::RecordConflict,
            ChildStep::Keep,
        ),
        (
            true,
            vec![entry("Waiting", 1)],
            1004,
            FieldDecision::Wait(wait(6)),
            ChildStep::Keep,
        ),
        (
            true,
            vec![entry("Waiting", 1)],
            1010,
            FieldDecision::Write,
            APPLY,
        ),
        (
            true,
            vec![entry("Held", 1)],
            1020,
            FieldDecision::RecordConflict,
            ChildStep::Keep,
        ),
        (
            false,
            vec![entry("Held", 1)],
            1020,
            FieldDecision::AwaitReset(wait(880)),
            ChildStep::Keep,
        ),
        (
            false,
            vec![entry("Held", 1)],
            1900,
            FieldDecision::Keep,
            ChildStep::Keep,
        ),
        (
            true,
            vec![entry("Stopped", 5)],
            9000,
            FieldDecision::Yield,
            ChildStep::Keep,
        ),
    ] {
        let case = format!("changed {changed}, {entries:?}, at {now}");
        let observed = applied(changed, entries);
        assert_eq!(planned(&observed, at(now)), (decision, step), "{case}");
    }
}

/// CONF-5, CONF-6
#[test]
fn change_of_the_actor_or_the_target_is_applied_at_once() {
    let mut observed = applied(true, vec![entry("Waiting", 2)]);
    observed.previous.inventory[0].hash = Some("of another spec".to_owned());
    assert_eq!(planned(&observed, at(1000)), (FieldDecision::Write, APPLY));
    let mut recreated = applied(true, vec![]);
    recreated.previous.inventory[0].uid = Some("of the previous object".to_owned());
    assert_eq!(planned(&recreated, at(1000)), (FieldDecision::Write, APPLY));
    let mut stopped = entry("Stopped", 5);
    stopped.spec_hash = "another spec".to_owned();
    let observed = applied(true, vec![stopped.clone()]);
    let decision = planned(&observed, at(9000));
    assert_eq!(decision, (FieldDecision::Write, APPLY), "another target");
    stopped.uid = "another target".to_owned();
    let observed = applied(true, vec![stopped]);
    assert!(matches!(
        planned(&observed, at(9000)),
        (FieldDecision::RecordConflict, ChildStep::Keep)
    ));
    let mut gone = applied(true, vec![entry("Stopped", 5)]);
    gone.scaling.scaled_object = Child::NotFound;
    gone.resolved_mut().target.replicas = Some(0);
    assert_eq!(planned(&gone, at(9000)).1, APPLY, "it was deleted");
}
