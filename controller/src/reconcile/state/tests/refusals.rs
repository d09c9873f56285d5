use asya_shared::api::State;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::{now, of_set, pods};
use crate::pods::refusals::Refusal;
use crate::reconcile::tests::fixtures::workload;
use crate::record::ReplicaFailure;

/// STA-2
#[test]
fn only_a_quota_rejection_is_pending_resources() {
    let refused = |message: &str| {
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
        refused("pods \"x\" is forbidden: exceeded quota: q"),
        State::PendingResources
    );
    assert_eq!(
        refused("pods \"x\" is forbidden: violates PodSecurity"),
        State::WorkloadError
    );
}

/// STA-2, STA-6
#[test]
fn rejection_reported_only_by_events_counts_like_a_replica_failure() {
    let refused = |message: &str| {
        let refusal = Refusal {
            failure: ReplicaFailure {
                reason: "FailedCreate".into(),
                message: message.into(),
            },
            ends: now() + SignedDuration::from_secs(30),
        };
        of_set("", [2, 1, 1, 1], false)
            .with(|row| row.refusal = Some(refusal))
            .decide()
    };
    let verdict = refused("pods \"a-1\" is forbidden: exceeded quota: q");
    assert_eq!(verdict.state, State::PendingResources);
    assert_eq!(verdict.again, Some(now() + SignedDuration::from_secs(30)));
    assert_eq!(
        verdict.workload.unwrap().message,
        "pods cannot be created: pods \"a-1\" is forbidden: exceeded quota: q"
    );
    let verdict = refused("pods \"a-1\" is forbidden: violates PodSecurity");
    assert_eq!(verdict.state, State::Degraded);
}
