use super::{ReadyPodCounts, ScalingStartInputs, blocked_by};

#[expect(clippy::unnecessary_wraps, reason = "rows hold an Option")]
fn pods(total: i32, injected: i32, current: i32) -> Option<ReadyPodCounts> {
    Some(ReadyPodCounts {
        total,
        active: total,
        injected,
        current,
    })
}

/// SAFE-20
#[test]
fn scaled_object_waits_for_a_dry_run_and_for_a_ready_pod_with_the_sidecar_if_any_runs() {
    for (injection_verified, ready, blocked) in [
        (false, None, true),
        (true, None, true),
        (false, pods(0, 0, 0), true),
        (true, pods(0, 0, 0), false),
        (false, pods(2, 0, 0), true),
        // A dry run alone does not show whether the current pods will consume messages.
        (true, pods(2, 0, 0), true),
        (true, pods(2, 1, 0), false),
        // An admitted pod verifies as much as a dry run.
        (false, pods(2, 1, 1), false),
        (false, pods(2, 2, 0), true),
    ] {
        for on_restart in [false, true] {
            let inputs = ScalingStartInputs {
                exists: false,
                injection_verified,
                ready,
                desired_replicas: None,
                on_restart,
            };
            assert_eq!(blocked_by(&inputs).is_some(), blocked, "{inputs:?}");
        }
    }
}

/// SAFE-20
#[test]
fn target_is_not_scaled_between_a_pod_and_its_replacement() {
    for (desired_replicas, blocked) in [(Some(1), true), (Some(0), false), (None, false)] {
        let inputs = ScalingStartInputs {
            injection_verified: true,
            ready: pods(0, 0, 0),
            desired_replicas,
            ..ScalingStartInputs::default()
        };
        assert_eq!(
            blocked_by(&inputs).is_some(),
            blocked,
            "{desired_replicas:?}"
        );
    }
    let terminating = ScalingStartInputs {
        injection_verified: true,
        ready: Some(ReadyPodCounts {
            total: 1,
            ..ReadyPodCounts::default()
        }),
        ..ScalingStartInputs::default()
    };
    assert!(blocked_by(&terminating).is_some());
    let stuck_at_zero = ScalingStartInputs {
        desired_replicas: Some(0),
        ..terminating
    };
    assert_eq!(blocked_by(&stuck_at_zero), None);
}

/// SAFE-20
#[test]
fn message_says_that_scaling_waits_for_a_restart_with_rollout_on_restart() {
    let inputs = |on_restart| ScalingStartInputs {
        ready: pods(2, 0, 0),
        on_restart,
        ..ScalingStartInputs::default()
    };
    let text = blocked_by(&inputs(true)).unwrap_or_default();
    assert!(text.contains("OnRestart, so restart a pod"), "{text}");
    let text = blocked_by(&inputs(false)).unwrap_or_default();
    assert!(!text.contains("OnRestart"), "{text}");
}

/// An upgrade of the operator deletes no existing `ScaledObject` (SAFE-21).
#[test]
fn existing_scaled_object_is_never_blocked() {
    for ready in [None, pods(0, 0, 0), pods(2, 0, 0), pods(2, 2, 2)] {
        let inputs = ScalingStartInputs {
            exists: true,
            ready,
            ..ScalingStartInputs::default()
        };
        assert_eq!(blocked_by(&inputs), None, "{inputs:?}");
    }
}
