//! The other results of a row of the table, besides STATUS.

use super::*;

/// STA-3
#[test]
fn message_of_a_failure_names_container_reason_and_pod() {
    let decision = pods("", [1, 1, 1, 0])
        .failing(ProblemClass::ImagePullError)
        .decide();
    assert_eq!(
        decision.workload.unwrap().message,
        "Container c: Why (pod pod-1)"
    );
}

/// STA-6
#[test]
fn next_check_is_exactly_when_an_unready_pod_exceeds_its_limit() {
    let decision = pods("", [1, 1, 1, 0]).unready_for(299).decide();
    assert_eq!(
        decision.recheck_at,
        Some(now() + SignedDuration::from_secs(1))
    );
    let decision = pods("", [2, 2, 2, 1]).progressing_for(590).decide();
    assert_eq!(
        decision.recheck_at,
        Some(now() + SignedDuration::from_secs(10))
    );
    assert_eq!(pods("", [1, 1, 1, 1]).decide().recheck_at, None);
}

/// WRK-5
#[test]
fn counts_of_an_older_generation_are_not_a_rollout() {
    let mut row = pods("", [3, 3, 1, 1]);
    if let Some(workload) = &mut row.workload {
        Arc::make_mut(workload).generation = 2;
    }
    assert_eq!(row.decide().state, State::ScalingUp);
}
