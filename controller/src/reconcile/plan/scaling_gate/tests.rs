use super::{ReadyPods, ScalingGateFacts, waits_for};

#[expect(clippy::unnecessary_wraps, reason = "rows hold them so")]
fn pods(total: i32, injected: i32, current: i32) -> Option<ReadyPods> {
    Some(ReadyPods {
        total,
        matched: total,
        injected,
        current,
    })
}

/// SAFE-20
#[test]
fn scaled_object_waits_for_a_probe_and_for_a_ready_pod_with_the_sidecar_if_any_runs() {
    for (proved, ready, waits) in [
        (false, None, true),
        (true, None, true),
        (false, pods(0, 0, 0), true),
        (true, pods(0, 0, 0), false),
        (false, pods(2, 0, 0), true),
        // A dry run alone does not show whether the pods that serve now will consume messages.
        (true, pods(2, 0, 0), true),
        (true, pods(2, 1, 0), false),
        // A pod that was admitted is as good as a dry run.
        (false, pods(2, 1, 1), false),
        (false, pods(2, 2, 0), true),
    ] {
        for on_restart in [false, true] {
            let facts = ScalingGateFacts {
                exists: false,
                proved,
                ready,
                wanted: None,
                on_restart,
            };
            assert_eq!(waits_for(&facts).is_some(), waits, "{facts:?}");
        }
    }
}

/// SAFE-20
#[test]
fn target_is_not_scaled_between_a_pod_and_its_replacement() {
    for (wanted, waits) in [(Some(1), true), (Some(0), false), (None, false)] {
        let facts = ScalingGateFacts {
            proved: true,
            ready: pods(0, 0, 0),
            wanted,
            ..ScalingGateFacts::default()
        };
        assert_eq!(waits_for(&facts).is_some(), waits, "{wanted:?}");
    }
    let going = ScalingGateFacts {
        proved: true,
        ready: Some(ReadyPods {
            total: 1,
            ..ReadyPods::default()
        }),
        ..ScalingGateFacts::default()
    };
    assert!(waits_for(&going).is_some());
    let stuck_at_zero = ScalingGateFacts {
        wanted: Some(0),
        ..going
    };
    assert_eq!(waits_for(&stuck_at_zero), None);
}

/// SAFE-20
#[test]
fn message_says_that_scaling_waits_for_a_restart_with_rollout_on_restart() {
    let facts = |on_restart| ScalingGateFacts {
        ready: pods(2, 0, 0),
        on_restart,
        ..ScalingGateFacts::default()
    };
    let text = waits_for(&facts(true)).unwrap_or_default();
    assert!(text.contains("OnRestart, so restart a pod"), "{text}");
    let text = waits_for(&facts(false)).unwrap_or_default();
    assert!(!text.contains("OnRestart"), "{text}");
}

/// An upgrade of the operator deletes no existing `ScaledObject` (SAFE-21).
#[test]
fn existing_scaled_object_is_kept_whatever_the_state_of_the_pods() {
    for ready in [None, pods(0, 0, 0), pods(2, 0, 0), pods(2, 2, 2)] {
        let facts = ScalingGateFacts {
            exists: true,
            ready,
            ..ScalingGateFacts::default()
        };
        assert_eq!(waits_for(&facts), None, "{facts:?}");
    }
}
