use super::{Facts, ReadyPods, waits_for};

#[expect(clippy::unnecessary_wraps, reason = "rows hold them so")]
fn pods(total: i32, injected: i32, current: i32) -> Option<ReadyPods> {
    Some(ReadyPods {
        total,
        injected,
        current,
    })
}

/// SAFE-20
#[test]
fn scaled_object_waits_for_a_probe_and_where_pods_run_for_one_that_is_ready_with_the_sidecar() {
    for (proved, ready, waits) in [
        (false, None, true),
        (true, None, true),
        (false, pods(0, 0, 0), true),
        (true, pods(0, 0, 0), false),
        (false, pods(2, 0, 0), true),
        // A dry run alone says nothing about whether the pods that serve today will take messages.
        (true, pods(2, 0, 0), true),
        (true, pods(2, 1, 0), false),
        // What was really admitted is as good as a dry run.
        (false, pods(2, 1, 1), false),
        (false, pods(2, 2, 0), true),
    ] {
        for on_restart in [false, true] {
            let facts = Facts {
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
fn target_that_asks_for_pods_is_not_scaled_between_a_pod_and_its_replacement() {
    for (wanted, waits) in [(Some(1), true), (Some(0), false), (None, false)] {
        let facts = Facts {
            proved: true,
            ready: pods(0, 0, 0),
            wanted,
            ..Facts::default()
        };
        assert_eq!(waits_for(&facts).is_some(), waits, "{wanted:?}");
    }
    let going = Facts {
        proved: true,
        ready: Some(ReadyPods {
            total: 1,
            ..ReadyPods::default()
        }),
        ..Facts::default()
    };
    assert!(waits_for(&going).is_some());
}

/// SAFE-20
#[test]
fn who_leaves_pods_to_their_next_restart_is_told_that_scaling_waits_for_one() {
    let facts = |on_restart| Facts {
        ready: pods(2, 0, 0),
        on_restart,
        ..Facts::default()
    };
    let text = waits_for(&facts(true)).unwrap_or_default();
    assert!(text.contains("OnRestart, so restart a pod"), "{text}");
    let text = waits_for(&facts(false)).unwrap_or_default();
    assert!(!text.contains("OnRestart"), "{text}");
}

/// SAFE-21: an upgrade of the operator takes down nothing that scales.
#[test]
fn scaled_object_that_exists_stays_whatever_is_known_of_the_pods() {
    for ready in [None, pods(0, 0, 0), pods(2, 0, 0), pods(2, 2, 2)] {
        let facts = Facts {
            exists: true,
            ready,
            ..Facts::default()
        };
        assert_eq!(waits_for(&facts), None, "{facts:?}");
    }
}
