use asya_shared::api::{AsyncActorStatus, InjectionStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{bound, condition, is, now, observed_target, status_of};
use crate::reconcile::model::outcome::ProbeOutcome;
use crate::reconcile::model::target_pods::actor_hash;

/// SAFE-1, ROLL-2 (i)
#[test]
fn rejected_dry_run_is_reported_until_a_pod_is_admitted() {
    let extra = json!({"runtime": {"targetURL": "http://127.0.0.1:8000"}});
    let previous = AsyncActorStatus {
        bound_since: Some(Time(now())),
        injection: Some(InjectionStatus::default()),
        ..AsyncActorStatus::default()
    };
    let after = |status: &AsyncActorStatus, probed: ProbeOutcome| {
        let mut inputs = bound(&extra, status);
        inputs.2.probe.outcome = probed;
        status_of(&inputs)
    };
    let first = after(
        &previous,
        ProbeOutcome::Rejected("exceeded quota".to_owned()),
    );
    let rejected = is("False", "ProbeRejected");
    assert_eq!(condition(&first, "Injected"), rejected);
    let text = |status: &AsyncActorStatus| {
        let mut all = status.conditions.iter();
        all.find(|condition| condition.type_ == "Injected")
            .unwrap()
            .message
            .clone()
    };
    assert!(text(&first).ends_with("exceeded quota"), "{first:?}");
    let (observed, ..) = bound(&extra, &first);
    let hash = observed.desired_binding().unwrap().injected_hash.as_deref();
    let injection = first.injection.as_ref().unwrap();
    assert_eq!(injection.rejected_actor_hash.as_deref(), actor_hash(hash));
    let unchanged = after(&first, ProbeOutcome::NotRun);
    assert_eq!(condition(&unchanged, "Injected"), rejected);
    let admitted = after(&first, ProbeOutcome::Admitted);
    assert_ne!(condition(&admitted, "Injected"), rejected);
}

/// SAFE-28, FW-26
#[test]
fn model_not_ready_within_its_progress_limit_is_reported() {
    let status_with_limit = |progress: u32| {
        let since = now().checked_add(k8s_openapi::jiff::SignedDuration::from_mins(-10));
        let previous = AsyncActorStatus {
            bound_since: Some(Time(now())),
            observed_generation: Some(2),
            ready_replicas: Some(0),
            progressing_since: since.ok().map(Time),
            ..AsyncActorStatus::default()
        };
        let extra = json!({
            "timeout": {"progress": progress}, "runtime": {"targetURL": "http://127.0.0.1:8000"},
        });
        let mut inputs = bound(&extra, &previous);
        inputs.0.binding = Some(observed_target());
        let status = status_of(&inputs);
        (condition(&status, "WorkloadReady"), status.status)
    };
    let exceeded = is("False", "ProgressDeadlineExceeded");
    let (told, state) = status_with_limit(540);
    assert_eq!(
        (told, state),
        (exceeded.clone(), Some(State::WorkloadError))
    );
    let (told, state) = status_with_limit(3000);
    assert_ne!(told, exceeded, "the limit is 50 minutes");
    assert_eq!(
        state,
        Some(State::ScalingUp),
        "also of the time that a pod may take to become ready"
    );
}
