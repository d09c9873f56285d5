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

/// STA-2: no event ends a failure that only its age ends.
#[test]
fn failed_exit_of_a_new_pod_ends_by_time_while_old_pods_are_ready() {
    let ends = now() + SignedDuration::from_secs(30);
    let rolling = || pods("", [1, 2, 1, 1]).with(|row| row.pods.current_ready = 0);
    let failing = rolling().failing(ProblemClass::RuntimeError);
    let failing = failing.with(|row| row.pods.failure_expires = Some(ends));
    let decision = failing.decide();
    assert_eq!(
        (decision.state, decision.recheck_at),
        (State::RuntimeError, Some(ends))
    );
    let unready = pods("", [1, 1, 1, 1]).unready_for(10).decide();
    assert_eq!(unready.recheck_at, None, "enough pods are ready");
}

/// STA-4, FW-26: such as on a node that is gone.
#[test]
fn pod_that_terminates_for_long_hides_no_pod_that_does_not_start() {
    let state = |counts: [i32; 4], desired| {
        let row = pods("", counts).terminating_pods(1);
        let decision = row.was(Some(State::ScalingDown), desired).decide();
        let ready = decision.workload.map(|it| it.status);
        (decision.state, ready, decision.progressing)
    };
    assert_eq!(state([1, 1, 1, 0], 0), (State::ScalingUp, Some(NO), true));
    assert_eq!(state([6, 6, 6, 2], 3), (State::ScalingUp, Some(YES), true));
    assert_eq!(
        state([1, 1, 1, 1], 1),
        (State::ScalingDown, Some(YES), false)
    );
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
