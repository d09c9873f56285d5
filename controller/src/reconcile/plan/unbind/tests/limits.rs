//! Slots and budgets: what else limits how many pods are replaced.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::reconcile::model::rollout::TemplateSidecar;

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
    let clean_pods = UnbindInputs {
        pods: &[],
        ..waiting.clone()
    };
    assert_eq!(
        decide(&clean_pods),
        UnbindStep::AwaitSlot,
        "pods of the annotated template restart, too"
    );
    let no_pods = Availability::default();
    for availability in [None, Some(&no_pods)] {
        let no_pods = UnbindInputs {
            availability,
            ..clean_pods.clone()
        };
        assert_eq!(decide(&no_pods), UnbindStep::GiveUp, "nothing restarts");
    }
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
    let (pods, stateful_set) = ([pod("a"), pod("b")], [stateful_set()]);
    let (a_unready, other_unready) = (unready("a"), unready("c"));
    let incomplete = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &stateful_set,
        availability: Some(&a_unready),
        limits: UnbindLimits::default(),
        ..base()
    };
    let evicts_a = UnbindStep::EvictUnready(pod("a"));
    assert_eq!(decide(&incomplete), evicts_a, "without a slot");
    let by_owner = UnbindInputs {
        method: Some(&owner),
        ..incomplete.clone()
    };
    assert_eq!(decide(&by_owner), evicts_a);
    // The replacement has no sidecar any more, and is not ready yet.
    let starting = UnbindInputs {
        availability: Some(&other_unready),
        ..incomplete.clone()
    };
    let UnbindStep::Blocked(text) = decide(&starting) else {
        panic!("{:?}", decide(&starting));
    };
    assert!(text.contains("pod c is not ready"), "{text}");
    let begun = UnbindInputs {
        since_last_action: Some(Duration::from_secs(3)),
        ..incomplete
    };
    assert_eq!(
        decide(&begun),
        UnbindStep::Evict(pod("a")),
        "the fields are given up"
    );
}

/// SAFE-13
#[test]
fn fields_are_given_up_at_once_where_no_ready_pod_is_lost_or_evictions_cannot_help() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a"), pod("b")];
    let a_unready = unready("a");
    let changed = |change: fn(&mut TargetObject)| {
        let mut object = stateful_set();
        change(&mut object);
        object
    };
    for (case, object, blocking_pdb) in [
        ("all are ready", changed(|it| it.ready = 2), None),
        ("none is ready", changed(|it| it.ready = 0), None),
        (
            "it replaces pods before it deletes them",
            changed(|it| it.deletes_pod_first = false),
            None,
        ),
        (
            "it replaces none",
            changed(|it| it.needs_eviction = true),
            None,
        ),
        (
            "replacements would get the sidecar from the template",
            changed(|it| it.in_template = true),
            None,
        ),
        (
            "as would those of a template from Git",
            changed(|it| {
                it.template_sidecar = Some(TemplateSidecar {
                    actor: ACTOR.into(),
                    is_ours: false,
                });
            }),
            None,
        ),
        (
            "the budget would refuse evictions",
            stateful_set(),
            Some("budget".to_owned()),
        ),
    ] {
        let objects = [object];
        let inputs = UnbindInputs {
            pods: &pods,
            method: Some(&template),
            objects: &objects,
            availability: Some(&a_unready),
            limits: UnbindLimits {
                has_slot: true,
                blocking_pdb,
                refused_eviction: None,
            },
            ..base()
        };
        assert_eq!(decide(&inputs), UnbindStep::GiveUp, "{case}");
    }
}

/// SAFE-12, SAFE-13
#[test]
fn pod_that_does_not_become_ready_or_does_not_terminate_is_reported_after_its_time() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, stateful_set) = ([pod("a"), pod("b")], [stateful_set()]);
    let other_unready = unready("c");
    let terminating = Availability {
        has_terminating: true,
        ..unready("a")
    };
    let second = |second| Timestamp::from_second(second).unwrap();
    let step = |availability: &Availability, has_terminating, now| {
        decide(&UnbindInputs {
            pods: &pods,
            method: Some(&template),
            objects: &stateful_set,
            availability: Some(availability),
            has_terminating,
            since: Some(second(1000)),
            limit: Some(Duration::from_mins(10)),
            now: second(now),
            ..base()
        })
    };
    for (case, availability, has_terminating, text) in [
        (
            "not ready",
            &other_unready,
            false,
            "pod c is not ready for 600 s",
        ),
        (
            "terminating",
            &terminating,
            false,
            "a pod has been terminating for 600 s",
        ),
        (
            "with the sidecar",
            &unready("a"),
            true,
            "a pod has been terminating for 600 s",
        ),
    ] {
        let early = step(availability, has_terminating, 1599);
        assert!(
            matches!(early, UnbindStep::InProgress | UnbindStep::Blocked(_)),
            "{case}: {early:?}"
        );
        let UnbindStep::Stalled(late) = step(availability, has_terminating, 1600) else {
            panic!("{case}");
        };
        assert!(late.contains(text), "{late}");
    }
}

/// SAFE-13, BIND-43: a webhook replica that is behind injects replacements as well; without end if each were evicted.
#[test]
fn unready_pod_that_was_created_after_the_deletion_has_time_to_become_ready() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let second = |second| Timestamp::from_second(second).unwrap();
    let a_unready = unready("a");
    for (created, annotation, waits_at, goes_at) in [
        // Created before the deletion.
        (999, Some("x"), None, 1001),
        (999, None, None, 1001),
        (1001, Some("x"), Some(1030), 1031),
        (1001, None, Some(1030), 1031),
    ] {
        let new = PodToReplace {
            created: Some(Time(second(created))),
            ..pod("a")
        };
        let (pods, mut objects) = ([new.clone(), pod("b")], [stateful_set()]);
        objects[0].roll_value = annotation.map(str::to_owned);
        let step = |now| {
            decide(&UnbindInputs {
                pods: &pods,
                method: Some(&template),
                objects: &objects,
                availability: Some(&a_unready),
                since: Some(second(1000)),
                now: second(now),
                ..base()
            })
        };
        if let Some(now) = waits_at {
            assert_eq!(
                step(now),
                UnbindStep::InProgress,
                "{created} {annotation:?}"
            );
        }
        let expected = if annotation.is_some() {
            UnbindStep::EvictUnready(new)
        } else {
            UnbindStep::Evict(new)
        };
        assert_eq!(step(goes_at), expected, "{created} {annotation:?}");
    }
}

/// BIND-43: it waits for each of its pods to be ready, even for one that the new revision would repair.
#[test]
fn unready_pod_of_a_stateful_set_is_evicted_although_its_controller_rolls_pods() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a"), pod("b")];
    let a_unready = unready("a");
    let step = |deletes_pod_first, availability| {
        let object = TargetObject {
            rolling: true,
            deletes_pod_first,
            ..TargetObject::default()
        };
        decide(&UnbindInputs {
            pods: &pods,
            method: Some(&template),
            objects: &[object],
            availability: Some(availability),
            since_last_action: Some(Duration::from_mins(1)),
            ..base()
        })
    };
    assert_eq!(step(true, &a_unready), UnbindStep::Evict(pod("a")));
    assert_eq!(step(true, &ALL_READY), UnbindStep::InProgress);
    assert_eq!(step(false, &a_unready), UnbindStep::InProgress);
}

/// A `StatefulSet` with our annotation, one of whose two pods is ready.
pub(super) fn stateful_set() -> TargetObject {
    TargetObject {
        roll_value: Some("x".to_owned()),
        deletes_pod_first: true,
        desired_replicas: Some(2),
        ready: 1,
        ..TargetObject::default()
    }
}

pub(super) fn unready(name: &str) -> Availability {
    Availability {
        unready: vec![UnreadyPod {
            name: name.into(),
            uid: name.into(),
            created: None,
        }],
        ..ALL_READY.clone()
    }
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
            refused_eviction: None,
        },
        ..base()
    };
    let clean_pods = UnbindInputs {
        pods: &[],
        ..exhausted.clone()
    };
    for inputs in [&exhausted, &clean_pods] {
        let UnbindStep::Blocked(text) = decide(inputs) else {
            panic!("not blocked");
        };
        assert!(text.starts_with("PodDisruptionBudget models "), "{text}");
    }
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
