use std::time::Duration;

use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use super::{LATER, Live, UNBOUND, Unbind, UnbindFacts, decide};
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::rollout::{Availability, UnreadyPod};

static ALL_READY: Availability = Availability {
    present: 2,
    unready: Vec::new(),
    going: false,
    wanted: None,
};

fn pod(name: &str) -> OutdatedPod {
    OutdatedPod {
        name: name.into(),
        uid: name.into(),
        ..OutdatedPod::default()
    }
}

fn live(value: Option<&str>) -> Vec<Live> {
    vec![Live {
        value: value.map(str::to_owned),
        ..Live::default()
    }]
}

/// BIND-43
#[test]
fn sidecars_leave_by_removal_of_the_annotation_else_by_eviction() {
    let template = Roll::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, annotated, plain) = ([pod("a"), pod("b")], live(Some("x")), live(None));
    let base = UnbindFacts {
        skip: false,
        pods: &pods,
        going: false,
        asleep: false,
        availability: &ALL_READY,
        before: None,
        since: None,
        limit: None,
        now: Timestamp::UNIX_EPOCH,
        roll: Some(&template),
        live: &annotated,
        unresolved: None,
        released: None,
    };
    assert_eq!(decide(&base), Unbind::Release);
    let released = UnbindFacts {
        live: &plain,
        ..base.clone()
    };
    assert_eq!(decide(&released), Unbind::Evict(pod("b")));
    let going = UnbindFacts {
        going: true,
        ..released.clone()
    };
    assert!(matches!(decide(&going), Unbind::Wait(_)));
    let mut rolling = live(None);
    rolling[0].rolling = true;
    let rolling = UnbindFacts {
        live: &rolling,
        ..released.clone()
    };
    assert!(matches!(decide(&rolling), Unbind::Wait(_)));
    let clean = UnbindFacts {
        pods: &[],
        ..released.clone()
    };
    assert_eq!(decide(&clean), Unbind::Done);
    let left = UnbindFacts {
        pods: &[],
        ..base.clone()
    };
    assert_eq!(decide(&left), Unbind::Release, "the spec is as before");
    let nobody = UnbindFacts {
        roll: None,
        live: &[],
        ..base.clone()
    };
    assert_eq!(decide(&nobody), Unbind::Evict(pod("b")));

    let parent = Roll::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let just = UnbindFacts {
        roll: Some(&parent),
        released: Some(Duration::from_secs(3)),
        ..released
    };
    assert!(
        matches!(decide(&just), Unbind::Wait(_)),
        "its controller has to begin"
    );
}

/// BIND-43: the key of an `LLMInferenceService`
#[test]
fn annotation_is_changed_first_where_its_removal_triggers_no_rollout() {
    let spec = Roll::Annotate(ObjectRef::default(), vec!["spec", "annotations"]);
    let (pods, annotated, changed) = ([pod("a")], live(Some("x")), live(Some(UNBOUND)));
    let base = UnbindFacts {
        skip: false,
        pods: &pods,
        going: false,
        asleep: false,
        availability: &ALL_READY,
        before: None,
        since: None,
        limit: None,
        now: Timestamp::UNIX_EPOCH,
        roll: Some(&spec),
        live: &annotated,
        unresolved: None,
        released: None,
    };
    assert_eq!(decide(&base), Unbind::Change);
    let changed = UnbindFacts {
        live: &changed,
        released: Some(Duration::from_secs(3)),
        ..base
    };
    assert!(matches!(decide(&changed), Unbind::Wait(_)));
    let clean = UnbindFacts {
        pods: &[],
        ..changed
    };
    assert_eq!(decide(&clean), Unbind::Release);
}

/// BIND-45
#[test]
fn annotations_of_an_older_actor_are_kept() {
    let of_the_older = Live {
        value: Some("x".to_owned()),
        claimed: true,
        marked: true,
        paused: true,
        ..Live::default()
    };
    let unbind = |templated, pods: &[OutdatedPod]| {
        let mut live = of_the_older.clone();
        live.templated = templated;
        live.of_another();
        assert!(!live.marked);
        decide(&UnbindFacts {
            skip: false,
            pods,
            going: false,
            asleep: false,
            availability: &ALL_READY,
            before: None,
            since: None,
            limit: None,
            now: Timestamp::UNIX_EPOCH,
            roll: None,
            live: &[live],
            unresolved: None,
            released: None,
        })
    };
    assert_eq!(unbind(false, &[]), Unbind::Done);
    assert_eq!(unbind(false, &[pod("a")]), Unbind::Evict(pod("a")));
    assert_eq!(unbind(true, &[]), Unbind::Release, "that is its own");
}

/// BIND-43, BIND-50
#[test]
fn template_part_is_released_once_and_its_controller_replaces_the_pods() {
    let template = Roll::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, mut standing) = ([pod("a")], live(None));
    standing[0].templated = true;
    let base = UnbindFacts {
        skip: false,
        pods: &pods,
        going: false,
        asleep: false,
        availability: &ALL_READY,
        before: None,
        since: None,
        limit: None,
        now: Timestamp::UNIX_EPOCH,
        roll: Some(&template),
        live: &standing,
        unresolved: None,
        released: None,
    };
    assert_eq!(decide(&base), Unbind::Release);
    let without_pods = UnbindFacts {
        pods: &[],
        ..base.clone()
    };
    assert_eq!(decide(&without_pods), Unbind::Release, "at 0 replicas");
    let mut rolling = live(None);
    rolling[0].rolling = true;
    let released = UnbindFacts {
        live: &rolling,
        released: Some(Duration::from_secs(1)),
        ..base
    };
    assert!(matches!(decide(&released), Unbind::Wait(_)));
}

/// BIND-44
#[test]
fn paused_target_blocks_unbinding_unless_it_is_skipped() {
    let template = Roll::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, mut paused) = ([pod("a")], live(Some("x")));
    paused[0].paused = true;
    let base = UnbindFacts {
        skip: false,
        pods: &pods,
        going: false,
        asleep: false,
        availability: &ALL_READY,
        before: None,
        since: None,
        limit: None,
        now: Timestamp::UNIX_EPOCH,
        roll: Some(&template),
        live: &paused,
        unresolved: None,
        released: None,
    };
    assert!(matches!(decide(&base), Unbind::Blocked(..)));
    assert_eq!(decide(&UnbindFacts { skip: true, ..base }), Unbind::Done);
}

/// The owner's claim is removed in one patch with the annotation that rolled its pods (SO-5, BIND-43).
#[test]
fn claim_is_removed_even_if_nothing_else_was_written() {
    let roll = Roll::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let claimed = [Live {
        claimed: true,
        ..Live::default()
    }];
    let pods = [pod("a")];
    let facts = |pods| UnbindFacts {
        skip: false,
        pods,
        going: false,
        asleep: false,
        availability: &ALL_READY,
        before: None,
        since: None,
        limit: None,
        now: Timestamp::UNIX_EPOCH,
        roll: Some(&roll),
        live: &claimed,
        unresolved: None,
        released: None,
    };
    assert_eq!(decide(&facts(&pods)), Unbind::Release);
    assert_eq!(decide(&facts(&[])), Unbind::Release);
}

/// BIND-43, ROLL-4, SAFE-11, SAFE-12
#[test]
fn next_pod_is_evicted_only_after_the_last_replacement_is_ready() {
    let (pods, plain) = ([pod("a"), pod("b")], live(None));
    let unready = |name: &str| {
        vec![UnreadyPod {
            name: name.into(),
            uid: name.into(),
            created: None,
        }]
    };
    let decide = |availability: &Availability, since: i64| {
        decide(&UnbindFacts {
            skip: false,
            pods: &pods,
            going: false,
            asleep: false,
            availability,
            before: Some(3),
            since: Some(Timestamp::from_second(-since).unwrap()),
            limit: Some(Duration::from_mins(1)),
            now: Timestamp::UNIX_EPOCH,
            roll: Some(&Roll::Evict),
            live: &plain,
            unresolved: None,
            released: None,
        })
    };
    let all = Availability {
        present: 3,
        ..Availability::default()
    };
    assert_eq!(decide(&all, 61), Unbind::Evict(pod("b")));
    let starts = Availability {
        unready: unready("clean"),
        ..all.clone()
    };
    let missing = Availability {
        present: 2,
        ..all.clone()
    };
    for lower in [&starts, &missing] {
        assert!(matches!(decide(lower, 59), Unbind::Wait(_)));
        assert!(matches!(decide(lower, 61), Unbind::Stalled(..)));
    }
    let going = Availability {
        going: true,
        ..all.clone()
    };
    assert!(matches!(decide(&going, 61), Unbind::Wait(_)));
    let mut broken = starts;
    broken.unready.extend(unready("a"));
    assert_eq!(
        decide(&broken, 61),
        Unbind::Evict(pod("a")),
        "costs nothing"
    );
}

/// BIND-43, BIND-44
#[test]
fn unresolved_target_blocks_only_if_its_pods_may_have_the_sidecar() {
    let some = [pod("a")];
    let why = "its deploymentMode is ModelMesh";
    for (pods, going, written, wanted) in [
        (&[][..], false, false, Some(Unbind::Done)),
        (&[], true, false, None),
        (
            &[],
            false,
            true,
            Some(Unbind::Blocked(why.to_owned(), LATER)),
        ),
        (
            &some,
            false,
            false,
            Some(Unbind::Blocked(why.to_owned(), LATER)),
        ),
    ] {
        let told = decide(&UnbindFacts {
            skip: false,
            pods,
            going,
            asleep: false,
            availability: &ALL_READY,
            before: None,
            since: None,
            limit: None,
            now: Timestamp::UNIX_EPOCH,
            roll: None,
            live: &[],
            unresolved: Some((why, written)),
            released: None,
        });
        match wanted {
            Some(wanted) => assert_eq!(told, wanted),
            None => assert!(matches!(told, Unbind::Wait(_)), "{told:?}"),
        }
    }
}

/// SAFE-24, SO-6
#[test]
fn target_at_zero_is_woken_only_after_its_owner_had_time_to_restore_the_template() {
    let parent = Roll::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let (annotated, plain) = (live(Some("x")), live(None));
    let told = |live: &[Live], released: Option<u64>, asleep: bool| {
        decide(&UnbindFacts {
            skip: false,
            pods: &[],
            going: false,
            asleep,
            availability: &ALL_READY,
            before: None,
            since: None,
            limit: None,
            now: Timestamp::UNIX_EPOCH,
            roll: Some(&parent),
            live,
            unresolved: None,
            released: released.map(Duration::from_secs),
        })
    };
    assert_eq!(told(&annotated, None, true), Unbind::Release);
    assert!(matches!(told(&plain, Some(1), true), Unbind::Wait(_)));
    assert_eq!(told(&plain, Some(31), true), Unbind::Done);
    assert_eq!(told(&plain, Some(1), false), Unbind::Done);
    assert_eq!(
        told(&plain, None, true),
        Unbind::Done,
        "nothing was written"
    );
}

/// SAFE-19
#[test]
fn recorded_annotation_is_removed_even_if_the_target_does_not_resolve() {
    let why = Some(("its deploymentMode is ModelMesh", false));
    let decide = |live: &[Live], released| {
        decide(&UnbindFacts {
            skip: false,
            pods: &[],
            going: false,
            asleep: false,
            availability: &ALL_READY,
            before: None,
            since: None,
            limit: None,
            now: Timestamp::UNIX_EPOCH,
            roll: None,
            live,
            unresolved: why,
            released,
        })
    };
    assert_eq!(decide(&live(Some("x")), None), Unbind::Release);
    assert_eq!(decide(&live(None), None), Unbind::Done);
    let once = Some(Duration::from_secs(1));
    assert_eq!(decide(&live(Some("x")), once), Unbind::Done, "another's");
}
