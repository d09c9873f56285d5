mod leftover;
mod limits;
mod params;
mod refused;
mod restarts;
mod template;

use std::time::Duration;

use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::jiff::Timestamp;

use super::{TargetObject, UNBIND_MARKER, UnbindInputs, UnbindStep, UnresolvedTarget, decide};
use crate::reconcile::model::availability::{Availability, UnreadyPod};
use crate::reconcile::model::rollout::UnbindLimits;
use crate::reconcile::model::target_pods::PodToReplace;

static ALL_READY: Availability = Availability {
    active: 2,
    unready: Vec::new(),
    has_terminating: false,
    desired_replicas: None,
    source: None,
};

/// UID of the actor.
const ACTOR: &str = "actor-uid";

fn pod(name: &str) -> PodToReplace {
    PodToReplace {
        name: name.into(),
        uid: name.into(),
        ..PodToReplace::default()
    }
}

/// Nothing is left to remove, and nothing was done yet.
fn base() -> UnbindInputs<'static> {
    UnbindInputs {
        actor: ACTOR,
        skip: false,
        pods: &[],
        unmanaged_pod: None,
        has_terminating: false,
        scaled_to_zero: false,
        availability: Some(&ALL_READY),
        previous_pods: None,
        since: None,
        limit: None,
        now: Timestamp::UNIX_EPOCH,
        method: None,
        objects: &[],
        unresolved: None,
        since_last_action: None,
        limits: UnbindLimits {
            blocking_pdb: None,
            has_slot: true,
            refused_eviction: None,
        },
    }
}

fn objects(value: Option<&str>) -> Vec<TargetObject> {
    vec![TargetObject {
        roll_value: value.map(str::to_owned),
        ..TargetObject::default()
    }]
}

/// BIND-43
#[test]
fn sidecars_are_removed_by_releasing_the_annotation_or_else_by_eviction() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a"), pod("b")];
    let annotated = objects(Some("x"));
    let plain = objects(None);
    let base = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &annotated,
        ..base()
    };
    assert_eq!(decide(&base), UnbindStep::GiveUp);
    let given_up = UnbindInputs {
        objects: &plain,
        ..base.clone()
    };
    assert_eq!(decide(&given_up), UnbindStep::Evict(pod("b")));
    let terminating = UnbindInputs {
        has_terminating: true,
        ..given_up.clone()
    };
    assert_eq!(decide(&terminating), UnbindStep::InProgress);
    let mut rolling = objects(None);
    rolling[0].rolling = true;
    let rolling = UnbindInputs {
        objects: &rolling,
        ..given_up.clone()
    };
    assert_eq!(decide(&rolling), UnbindStep::InProgress);
    let clean = UnbindInputs {
        pods: &[],
        ..given_up.clone()
    };
    assert_eq!(decide(&clean), UnbindStep::Done);
    let annotated_only = UnbindInputs {
        pods: &[],
        ..base.clone()
    };
    assert_eq!(
        decide(&annotated_only),
        UnbindStep::GiveUp,
        "restores the spec"
    );

    let parent = RolloutMethod::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let just_released = UnbindInputs {
        method: Some(&parent),
        since_last_action: Some(Duration::from_secs(3)),
        ..given_up
    };
    assert!(
        matches!(decide(&just_released), UnbindStep::InProgress),
        "its controller has not started yet"
    );
}

/// BIND-44: a user has taken it out of its workload, for example by changing its labels.
#[test]
fn pod_without_a_controller_is_named_and_never_evicted() {
    let pods = [pod("a")];
    let others = UnbindInputs {
        pods: &pods,
        unmanaged_pod: Some("bare"),
        ..base()
    };
    assert_eq!(decide(&others), UnbindStep::Evict(pod("a")));
    let alone = UnbindInputs {
        pods: &[],
        ..others.clone()
    };
    let unresolved = UnbindInputs {
        unresolved: Some(UnresolvedTarget {
            reason: "ambiguous",
            may_have_fields: false,
        }),
        ..alone.clone()
    };
    for (inputs, expected) in [(&alone, "pod bare"), (&unresolved, "ambiguous")] {
        let UnbindStep::Blocked(text) = decide(inputs) else {
            panic!("{:?}", decide(inputs));
        };
        assert!(text.contains(expected), "{text}");
    }
    let annotated = objects(Some("x"));
    let annotated = UnbindInputs {
        objects: &annotated,
        ..alone.clone()
    };
    assert_eq!(
        decide(&annotated),
        UnbindStep::GiveUp,
        "restores the spec first"
    );
    let skipped = UnbindInputs {
        skip: true,
        ..alone
    };
    assert_eq!(decide(&skipped), UnbindStep::Done);
}

/// BIND-44, SAFE-11: nobody may replace the pods of a target that is gone.
#[test]
fn pods_of_a_target_that_is_gone_are_not_evicted() {
    let pods = [pod("a"), pod("b")];
    let deleted = Timestamp::UNIX_EPOCH;
    let decide = |seconds: i64| {
        decide(&UnbindInputs {
            pods: &pods,
            availability: None,
            previous_pods: Some(0),
            since: Some(deleted),
            now: deleted + Duration::from_secs(seconds.unsigned_abs()),
            ..base()
        })
    };
    assert_eq!(
        decide(1),
        UnbindStep::InProgress,
        "the garbage collector deletes them"
    );
    let UnbindStep::Blocked(text) = decide(31) else {
        panic!("{:?}", decide(31));
    };
    assert!(text.contains("pod a still has the sidecar"), "{text}");
}

/// BIND-43: the key of an `LLMInferenceService`
#[test]
fn annotation_is_changed_first_where_its_removal_triggers_no_rollout() {
    let spec = RolloutMethod::Annotate(ObjectRef::default(), vec!["spec", "annotations"]);
    let pods = [pod("a")];
    let annotated = objects(Some("x"));
    let changed = objects(Some(UNBIND_MARKER));
    let base = UnbindInputs {
        pods: &pods,
        method: Some(&spec),
        objects: &annotated,
        ..base()
    };
    assert_eq!(decide(&base), UnbindStep::ChangeValue);
    let changed = UnbindInputs {
        objects: &changed,
        since_last_action: Some(Duration::from_secs(3)),
        ..base
    };
    assert_eq!(decide(&changed), UnbindStep::InProgress);
    let clean = UnbindInputs {
        pods: &[],
        ..changed
    };
    assert_eq!(decide(&clean), UnbindStep::GiveUp);
}

/// BIND-45
#[test]
fn annotations_of_an_older_actor_are_kept() {
    let of_older_actor = TargetObject {
        roll_value: Some("x".to_owned()),
        handed_off: true,
        has_actor_annotation: true,
        paused: true,
        ..TargetObject::default()
    };
    let unbind = |in_template, pods: &[PodToReplace]| {
        let mut object = of_older_actor.clone();
        object.in_template = in_template;
        object.keep_template_fields_only();
        assert!(!object.has_actor_annotation);
        decide(&UnbindInputs {
            pods,
            objects: &[object],
            ..base()
        })
    };
    assert_eq!(unbind(false, &[]), UnbindStep::Done);
    assert_eq!(unbind(false, &[pod("a")]), UnbindStep::Evict(pod("a")));
    assert_eq!(unbind(true, &[]), UnbindStep::GiveUp, "its own fields");
}

/// BIND-44
#[test]
fn paused_target_blocks_unbinding_unless_skipped() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a")];
    let mut paused = objects(Some("x"));
    paused[0].paused = true;
    let base = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &paused,
        ..base()
    };
    assert!(matches!(decide(&base), UnbindStep::Blocked(_)));
    assert_eq!(
        decide(&UnbindInputs { skip: true, ..base }),
        UnbindStep::Done
    );
}

/// The handoff annotation is removed in one patch with the rollout annotation (SO-5, BIND-43).
#[test]
fn handoff_is_removed_even_if_nothing_else_was_written() {
    let roll = RolloutMethod::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let objects = [TargetObject {
        handed_off: true,
        ..TargetObject::default()
    }];
    let pods = [pod("a")];
    let inputs = |pods| UnbindInputs {
        pods,
        method: Some(&roll),
        objects: &objects,
        ..base()
    };
    assert_eq!(decide(&inputs(&pods)), UnbindStep::GiveUp);
    assert_eq!(decide(&inputs(&[])), UnbindStep::GiveUp);
}

/// BIND-43, ROLL-4, SAFE-11, SAFE-12
#[test]
fn next_pod_is_evicted_only_after_the_last_replacement_is_ready() {
    let pods = [pod("a"), pod("b")];
    let plain = objects(None);
    let unready = |name: &str| {
        vec![UnreadyPod {
            name: name.into(),
            uid: name.into(),
            created: None,
        }]
    };
    let decide = |availability: &Availability, since: i64| {
        decide(&UnbindInputs {
            pods: &pods,
            availability: Some(availability),
            previous_pods: Some(3),
            since: Some(Timestamp::from_second(-since).unwrap()),
            limit: Some(Duration::from_mins(1)),
            method: Some(&RolloutMethod::Evict),
            objects: &plain,
            ..base()
        })
    };
    let all = Availability {
        active: 3,
        ..Availability::default()
    };
    assert_eq!(decide(&all, 61), UnbindStep::Evict(pod("b")));
    let starting = Availability {
        unready: unready("clean"),
        ..all.clone()
    };
    let missing = Availability {
        active: 2,
        ..all.clone()
    };
    for availability in [&starting, &missing] {
        assert_eq!(decide(availability, 59), UnbindStep::InProgress);
        assert!(matches!(decide(availability, 61), UnbindStep::Stalled(_)));
    }
    let terminating = Availability {
        has_terminating: true,
        ..all.clone()
    };
    assert_eq!(decide(&terminating, 61), UnbindStep::InProgress);
    let mut broken = starting;
    broken.unready.extend(unready("a"));
    assert_eq!(
        decide(&broken, 61),
        UnbindStep::Evict(pod("a")),
        "costs no availability"
    );
}

/// BIND-43, BIND-44
#[test]
fn unresolved_target_blocks_only_if_its_pods_may_have_the_sidecar() {
    let some = [pod("a")];
    let why = "its deploymentMode is ModelMesh";
    for (pods, has_terminating, written, expected) in [
        (&[][..], false, false, Some(UnbindStep::Done)),
        (&[], true, false, None),
        (&[], false, true, Some(UnbindStep::Blocked(why.to_owned()))),
        (
            &some,
            false,
            false,
            Some(UnbindStep::Blocked(why.to_owned())),
        ),
    ] {
        let step = decide(&UnbindInputs {
            pods,
            has_terminating,
            unresolved: Some(UnresolvedTarget {
                reason: why,
                may_have_fields: written,
            }),
            ..base()
        });
        match expected {
            Some(expected) => assert_eq!(step, expected),
            None => assert!(matches!(step, UnbindStep::InProgress), "{step:?}"),
        }
    }
}

/// SAFE-24, SO-6
#[test]
fn unbinding_at_zero_waits_for_the_owner_to_restore_the_template() {
    let parent = RolloutMethod::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let annotated = objects(Some("x"));
    let plain = objects(None);
    let step = |objects: &[TargetObject], last_action: Option<u64>, scaled_to_zero: bool| {
        decide(&UnbindInputs {
            scaled_to_zero,
            method: Some(&parent),
            objects,
            since_last_action: last_action.map(Duration::from_secs),
            ..base()
        })
    };
    assert_eq!(step(&annotated, None, true), UnbindStep::GiveUp);
    assert_eq!(step(&plain, Some(1), true), UnbindStep::InProgress);
    assert_eq!(step(&plain, Some(31), true), UnbindStep::Done);
    assert_eq!(step(&plain, Some(1), false), UnbindStep::Done);
    assert_eq!(
        step(&plain, None, true),
        UnbindStep::Done,
        "nothing was written"
    );
}

/// SAFE-19
#[test]
fn recorded_annotation_is_removed_even_if_the_target_does_not_resolve() {
    let unresolved = Some(UnresolvedTarget {
        reason: "its deploymentMode is ModelMesh",
        may_have_fields: false,
    });
    let decide = |objects: &[TargetObject], last_action| {
        decide(&UnbindInputs {
            objects,
            unresolved,
            since_last_action: last_action,
            ..base()
        })
    };
    assert_eq!(decide(&objects(Some("x")), None), UnbindStep::GiveUp);
    assert_eq!(decide(&objects(None), None), UnbindStep::Done);
    let last_action = Some(Duration::from_secs(1));
    assert_eq!(
        decide(&objects(Some("x")), last_action),
        UnbindStep::Done,
        "owned by another manager"
    );
}
