use asya_shared::api::{AsyncActorStatus, InjectionStatus, PodCounts, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::tests::fixtures::record;
use crate::record::PodRecord;

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

/// BIND-5, BIND-7: new pods start without the sidecar, and nobody counts them.
#[test]
fn pods_of_a_binding_whose_transport_is_unusable_are_unknown() {
    let previous = AsyncActorStatus {
        bound_since: Some(Time(now())),
        pods: Some(PodCounts {
            matched: 3,
            injected: 3,
            ..PodCounts::default()
        }),
        ..AsyncActorStatus::default()
    };
    let report = |transport: &str| {
        let (observed, _, active_outcome) = bound(&json!({"transport": transport}), &previous);
        status_of(&(observed, ObservedBinding::Unknown, active_outcome))
    };
    let unusable = report("nowhere");
    assert_eq!(condition(&unusable, "Injected"), is("Unknown", "NotProven"));
    assert_eq!(unusable.pods, None);
    assert_eq!(report("mq").pods, previous.pods, "not listed yet");
}

/// BIND-6: a deadline that was exceeded, or pods that fail, are not forgotten while the pods are not listed yet.
#[test]
fn failing_pods_make_a_binding_unready_until_they_are_known_to_work() {
    let pod = |exit: bool| {
        let state = if exit {
            json!({"waiting": {"reason": "CrashLoopBackOff"}})
        } else {
            json!({"running": {}})
        };
        record::<PodRecord>(&json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1",
                "labels": {"asya.sh/asya": "a"}, "annotations": {"asya.sh/injected-by": "actor-uid"},
            },
            "spec": {"containers": [{"name": "asya-runtime"}, {"name": "asya-sidecar"}]},
            "status": {"containerStatuses": [{"name": "asya-runtime", "ready": false, "state": state}]},
        }))
    };
    let report = |previous: &AsyncActorStatus, pods: Option<Vec<_>>| {
        let mut inputs = bound(
            &json!({"runtime": {"targetURL": "http://127.0.0.1:8000"}}),
            previous,
        );
        inputs.1.resolved_mut().injection.pods = pods.map(|labelled| TargetPods {
            labelled,
            ..TargetPods::default()
        });
        status_of(&inputs)
    };
    let previous = AsyncActorStatus {
        bound_since: Some(Time(now())),
        ..AsyncActorStatus::default()
    };
    let failing = report(&previous, Some(vec![pod(true)]));
    let expected = is("False", "RuntimeError");
    assert_eq!(condition(&failing, "WorkloadReady"), expected);
    assert_eq!(condition(&failing, "Ready").0, "False");
    let unlisted = report(&failing, None);
    assert_eq!(condition(&unlisted, "WorkloadReady"), expected);
    let starting = report(&failing, Some(vec![pod(false)]));
    assert_eq!(condition(&starting, "WorkloadReady"), is("", ""));
}
