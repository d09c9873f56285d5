use asya_shared::api::{AsyncActorStatus, RolloutStatus};
use asya_shared::resolve::RolloutMethod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{bound, now, observed_target, status_of};
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::outcome::{ReplacementMethod, RolloutOutcome};
use crate::reconcile::model::rollout::{
    ObservedRollout, TargetObject, UNBIND_MARKER, consecutive_uninjected,
};
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState};

/// Status after a reconcile that requested a replacement; with `came_uninjected`, the last replacement has no sidecar.
fn status_after_request(
    by: ReplacementMethod,
    previous: &AsyncActorStatus,
    came_uninjected: bool,
) -> AsyncActorStatus {
    let (mut observed, binding, mut active_outcome) = bound(&json!({}), previous);
    let mut rollout = ObservedRollout::default();
    if came_uninjected {
        rollout.pod_counts.outdated.push(PodToReplace {
            name: "uninjected".into(),
            created: Some(Time(now())),
            sidecar: SidecarState::RemovedByOther,
            ..PodToReplace::default()
        });
    }
    observed.binding = Some(observed_target());
    observed.resolved_mut().rollout = Some(rollout);
    active_outcome.rollout = RolloutOutcome::Requested(by);
    let mut status = status_of(&(observed, binding, active_outcome));
    // The next pod is newer than that.
    if let Some(rollout) = &mut status.rollout {
        let since = rollout.since.as_ref().unwrap().0;
        rollout.since = Some(Time(since - std::time::Duration::from_secs(10)));
    }
    status
}

/// BIND-43, QUE-40: messages that arrive while the sidecars are removed make the actor active again, and it may write
/// again what it has given up.
#[test]
fn actor_that_drains_again_forgets_that_it_has_given_up_its_fields() {
    let rollout = |value: &str, outcome: RolloutOutcome| {
        let previous = AsyncActorStatus {
            rollout: Some(RolloutStatus {
                value: value.to_owned(),
                since: Some(Time(now())),
                pods: Some(2),
                ..RolloutStatus::default()
            }),
            ..AsyncActorStatus::default()
        };
        let (observed, binding, mut active_outcome) = bound(&json!({}), &previous);
        active_outcome.rollout = outcome;
        status_of(&(observed, binding, active_outcome)).rollout
    };
    let outcomes: [fn() -> RolloutOutcome; 3] = [
        || RolloutOutcome::NotChecked,
        || RolloutOutcome::waiting(Reason::RolloutWaiting, "why", Requeue::AwaitChange),
        || RolloutOutcome::Stalled("why".into()),
    ];
    for outcome in outcomes {
        let kept = rollout("hash", outcome());
        assert_eq!(kept.map(|it| it.value).as_deref(), Some("hash"));
        assert_eq!(rollout(UNBIND_MARKER, outcome()), None);
    }
    let halted = rollout(UNBIND_MARKER, RolloutOutcome::Halted("why".into()));
    assert_eq!(halted.map(|it| (it.since, it.pods)), Some((None, None)));
}

/// ROLL-5
#[test]
fn replacements_of_evicted_pods_without_the_sidecar_are_counted_across_reconciles() {
    let uninjected =
        |status: &AsyncActorStatus| status.rollout.as_ref().unwrap().uninjected_replacements;
    let first = status_after_request(
        ReplacementMethod::Eviction,
        &AsyncActorStatus::default(),
        false,
    );
    let second = status_after_request(ReplacementMethod::Eviction, &first, true);
    let third = status_after_request(ReplacementMethod::Eviction, &second, true);
    assert_eq!(
        (uninjected(&first), uninjected(&second), uninjected(&third)),
        (0, 1, 2)
    );
    assert_eq!(
        uninjected(&status_after_request(
            ReplacementMethod::Eviction,
            &third,
            false
        )),
        0,
        "only consecutive ones count"
    );
    let rolled = status_after_request(ReplacementMethod::Annotation, &third, true);
    assert_eq!(
        uninjected(&rolled),
        0,
        "a rollout by annotation resets the count"
    );
}

/// ROLL-5: the clock of the operator's node may be ahead of the API server's, or behind.
#[test]
fn replacements_are_the_pods_newer_than_those_to_be_replaced_whatever_the_clock_says() {
    let pod = |created: Timestamp| PodToReplace {
        created: Some(Time(created)),
        sidecar: SidecarState::Missing,
        ..PodToReplace::default()
    };
    for skew in [-90, 90].map(SignedDuration::from_secs) {
        let old = pod(now() + skew);
        let (mut observed, binding, mut active_outcome) =
            bound(&json!({}), &AsyncActorStatus::default());
        let mut rollout = ObservedRollout::default();
        rollout.pod_counts.outdated.push(old.clone());
        observed.binding = Some(observed_target());
        observed.resolved_mut().rollout = Some(rollout);
        active_outcome.rollout = RolloutOutcome::Requested(ReplacementMethod::Eviction);
        let status = status_of(&(observed, binding, active_outcome));
        let rollout = status.rollout.unwrap();
        assert_eq!(
            consecutive_uninjected(std::slice::from_ref(&old), &rollout),
            0,
            "{skew}"
        );
        let replacement = pod(now() + skew + SignedDuration::from_secs(1));
        let count = consecutive_uninjected(&[old, replacement], &rollout);
        assert_eq!(count, 1, "{skew}");
    }
}

/// SAFE-19
#[test]
fn annotated_object_is_remembered_after_it_leaves_the_target() {
    let status_after = |previous: &AsyncActorStatus, target: &str, value: Option<&str>, outcome| {
        let (mut observed, _, mut active_outcome) = bound(&json!({}), previous);
        observed.binding = Some(observed_target());
        let binding = observed.resolved_mut();
        let RolloutMethod::AnnotateTemplate(workloads) = &mut binding.target.target.roll else {
            panic!()
        };
        target.clone_into(&mut workloads[0].name);
        let target_object = TargetObject {
            object: workloads[0].clone(),
            roll_value: value.map(str::to_owned),
            ..TargetObject::default()
        };
        binding.rollout = Some(ObservedRollout {
            objects: vec![target_object],
            ..ObservedRollout::default()
        });
        active_outcome.rollout = outcome;
        status_of(&(observed, observed_target(), active_outcome))
    };
    let names = |status: &AsyncActorStatus| {
        let all = status.roll_annotations.iter();
        all.map(|annotation| format!("{} {}", annotation.name, annotation.path))
            .collect::<Vec<_>>()
    };
    let [web, other] =
        ["web", "web-2"].map(|name| format!("{name} spec.template.metadata.annotations"));
    let none = AsyncActorStatus::default();
    assert!(names(&status_after(&none, "web", None, RolloutOutcome::NotNeeded)).is_empty());
    let previous = status_after(&none, "web", Some("v"), RolloutOutcome::NotNeeded);
    assert_eq!(names(&previous), [&*web], "written by an earlier version");
    let requested = RolloutOutcome::Requested(ReplacementMethod::Annotation);
    let written = status_after(&none, "web", None, requested);
    assert_eq!(names(&written), [&*web]);
    let next = status_after(&written, "web-2", Some("v"), RolloutOutcome::NotNeeded);
    assert_eq!(names(&next), [&*web, &*other]);
    let again = status_after(&next, "web-2", None, RolloutOutcome::NotNeeded);
    assert_eq!(
        names(&again),
        [web, other],
        "forgotten only when the actor is deleted"
    );
}
