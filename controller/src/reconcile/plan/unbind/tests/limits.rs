//! Slots and budgets: what else limits how many pods are replaced.

use super::*;

/// SAFE-15: many bindings that are deleted at once do not roll all of their targets at once.
#[test]
fn unbinding_replaces_ready_pods_only_with_a_slot() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a"), pod("b")];
    let annotated = objects(Some("x"));
    let plain = objects(None);
    let waiting = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &annotated,
        limits: UnbindLimits::default(),
        ..base()
    };
    assert_eq!(decide(&waiting), UnbindStep::AwaitSlot);
    let owner = RolloutMethod::Annotate(ObjectRef::default(), vec!["spec", "annotations"]);
    let changed_value = UnbindInputs {
        method: Some(&owner),
        ..waiting.clone()
    };
    assert_eq!(decide(&changed_value), UnbindStep::AwaitSlot);
    let evicting = UnbindInputs {
        objects: &plain,
        ..waiting.clone()
    };
    assert_eq!(decide(&evicting), UnbindStep::AwaitSlot);
    let unready = Availability {
        unready: vec![UnreadyPod {
            name: "a".into(),
            uid: "a".into(),
            created: None,
        }],
        ..ALL_READY.clone()
    };
    let costs_nothing = UnbindInputs {
        availability: Some(&unready),
        ..evicting
    };
    assert_eq!(decide(&costs_nothing), UnbindStep::Evict(pod("a")));
    let acted = UnbindInputs {
        since_last_action: Some(Duration::from_secs(3)),
        ..changed_value
    };
    assert_ne!(
        decide(&acted),
        UnbindStep::AwaitSlot,
        "the rollout has begun"
    );
    let no_pods = UnbindInputs {
        pods: &[],
        ..waiting.clone()
    };
    assert_eq!(decide(&no_pods), UnbindStep::GiveUp, "nothing restarts");
    let in_template = [TargetObject {
        in_template: true,
        ..TargetObject::default()
    }];
    let template_strategy = UnbindInputs {
        objects: &in_template,
        ..waiting
    };
    assert_eq!(decide(&template_strategy), UnbindStep::GiveUp, "BIND-50");
}

/// SAFE-13: as at binding.
#[test]
fn unready_pods_are_replaced_before_their_controller_would_take_a_ready_one() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let owner = RolloutMethod::Annotate(ObjectRef::default(), vec!["spec", "annotations"]);
    let pods = [pod("a"), pod("b")];
    let mut stateful_set = objects(Some("x"));
    stateful_set[0].deletes_pod_first = true;
    stateful_set[0].desired_replicas = Some(2);
    stateful_set[0].ready = 1;
    let unready = |name: &str| Availability {
        unready: vec![UnreadyPod {
            name: name.into(),
            uid: name.into(),
            created: None,
        }],
        ..ALL_READY.clone()
    };
    let (a_unready, other_unready) = (unready("a"), unready("c"));
    let incomplete = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &stateful_set,
        availability: Some(&a_unready),
        limits: UnbindLimits::default(),
        ..base()
    };
    assert_eq!(
        decide(&incomplete),
        UnbindStep::EvictUnready(pod("a")),
        "without a slot"
    );
    let by_owner = UnbindInputs {
        method: Some(&owner),
        ..incomplete.clone()
    };
    assert_eq!(decide(&by_owner), UnbindStep::EvictUnready(pod("a")));
    let terminating = UnbindInputs {
        has_terminating: true,
        ..incomplete.clone()
    };
    assert_eq!(decide(&terminating), UnbindStep::InProgress);
    let terminating_without_sidecar = Availability {
        has_terminating: true,
        ..a_unready.clone()
    };
    let terminating = UnbindInputs {
        availability: Some(&terminating_without_sidecar),
        ..incomplete.clone()
    };
    assert_eq!(decide(&terminating), UnbindStep::InProgress);
    // The replacement has no sidecar any more, and is not ready yet.
    let starting = UnbindInputs {
        availability: Some(&other_unready),
        ..incomplete.clone()
    };
    let UnbindStep::Blocked(text) = decide(&starting) else {
        panic!("{:?}", decide(&starting));
    };
    assert!(text.contains("would replace a ready one"), "{text}");
    for (desired, ready, deletes_pod_first) in [(2, 2, true), (2, 0, true), (2, 1, false)] {
        let mut objects = stateful_set.clone();
        objects[0].desired_replicas = Some(desired);
        objects[0].ready = ready;
        objects[0].deletes_pod_first = deletes_pod_first;
        let with_slot = UnbindInputs {
            objects: &objects,
            limits: UnbindLimits {
                has_slot: true,
                ..UnbindLimits::default()
            },
            ..incomplete.clone()
        };
        assert_eq!(
            decide(&with_slot),
            UnbindStep::GiveUp,
            "{ready} of {desired}, {deletes_pod_first}"
        );
    }
    let begun = UnbindInputs {
        since_last_action: Some(Duration::from_secs(3)),
        ..incomplete
    };
    assert!(
        !matches!(decide(&begun), UnbindStep::EvictUnready(_)),
        "the fields are given up"
    );
}

/// ROLL-2 (d): as at binding.
#[test]
fn unbinding_waits_for_a_budget_that_its_rollout_would_exceed() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a"), pod("b")];
    let mut reducing = objects(Some("x"));
    reducing[0].reduces_ready = true;
    let exhausted = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &reducing,
        limits: UnbindLimits {
            blocking_pdb: Some("models".to_owned()),
            has_slot: true,
        },
        ..base()
    };
    let UnbindStep::Blocked(text) = decide(&exhausted) else {
        panic!("not blocked");
    };
    assert!(text.starts_with("PodDisruptionBudget models "), "{text}");
    let surging = objects(Some("x"));
    let surging = UnbindInputs {
        objects: &surging,
        ..exhausted.clone()
    };
    assert_eq!(decide(&surging), UnbindStep::GiveUp);
    let unready = Availability {
        unready: vec![UnreadyPod {
            name: "b".into(),
            uid: "b".into(),
            created: None,
        }],
        ..ALL_READY.clone()
    };
    let broken = UnbindInputs {
        availability: Some(&unready),
        ..exhausted
    };
    assert_eq!(
        decide(&broken),
        UnbindStep::GiveUp,
        "its own pods exhaust it"
    );
}
