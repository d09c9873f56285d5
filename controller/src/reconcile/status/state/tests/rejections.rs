use asya_shared::api::State;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::{now, pods, stateful_set_pods};
use crate::pods::creation_failures::PodCreationFailure;
use crate::reconcile::tests::fixtures::workload;
use crate::record::ReplicaFailure;

/// STA-2
#[test]
fn only_a_quota_rejection_is_pending_resources() {
    let state_after = |message: &str| {
        let mut row = pods("", [1, 0, 0, 0]);
        row.workload = Some(workload(&json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {"replicas": 1},
            "status": {"observedGeneration": 1, "conditions": [
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message},
            ]},
        })));
        row.decide().state
    };
    assert_eq!(
        state_after("pods \"x\" is forbidden: exceeded quota: q"),
        State::PendingResources
    );
    assert_eq!(
        state_after("pods \"x\" is forbidden: violates PodSecurity"),
        State::WorkloadError
    );
}

/// STA-2, STA-6
#[test]
fn rejection_reported_only_by_events_counts_like_a_replica_failure() {
    let decide_after = |message: &str| {
        let failure = PodCreationFailure {
            failure: ReplicaFailure {
                reason: "FailedCreate".into(),
                message: message.into(),
            },
            ends: now() + SignedDuration::from_secs(30),
        };
        stateful_set_pods("", [2, 1, 1, 1], false)
            .with(|row| row.refusal = Some(failure))
            .decide()
    };
    let decision = decide_after("pods \"a-1\" is forbidden: exceeded quota: q");
    assert_eq!(decision.state, State::PendingResources);
    assert_eq!(
        decision.recheck_at,
        Some(now() + SignedDuration::from_secs(30))
    );
    assert_eq!(
        decision.workload.unwrap().message,
        "pods cannot be created: pods \"a-1\" is forbidden: exceeded quota: q"
    );
    let decision = decide_after("pods \"a-1\" is forbidden: violates PodSecurity");
    assert_eq!(decision.state, State::Degraded);
}
