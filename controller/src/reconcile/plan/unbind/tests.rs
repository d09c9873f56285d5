use std::time::Duration;

use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use super::{Facts, LATER, Live, UNBOUND, Unbind, decide};
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
fn sidecars_leave_by_giving_up_the_annotation_else_by_eviction_one_by_one() {
    let template = Roll::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, annotated, plain) = ([pod("a"), pod("b")], live(Some("x")), live(None));
    let base = Facts {
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
    let released = Facts {
        live: &plain,
        ..base.clone()
    };
    assert_eq!(decide(&released), Unbind::Evict(pod("b")));
    let going = Facts {
        going: true,
        ..released.clone()
    };
    assert!(matches!(decide(&going), Unbind::Wait(_)));
    let mut rolling = live(None);
    rolling[0].rolling = true;
    let rolling = Facts {
        live: &rolling,
        ..released.clone()
    };
    assert!(matches!(decide(&rolling), Unbind::Wait(_)));
    let clean = Facts {
        pods: &[],
        ..released.clone()
    };
    assert_eq!(decide(&clean), Unbind::Done);
    let left = Facts {
        pods: &[],
        ..base.clone()
    };
    assert_eq!(decide(&left), Unbind::Release, "the spec is as before");
    let nobody = Facts {
        roll: None,
        live: &[],
        ..base.clone()
    };
    assert_eq!(decide(&nobody), Unbind::Evict(pod("b")));

    let parent = Roll::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let just = Facts {
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
fn where_giving_up_rolls_nothing_the_value_is_changed_first_and_given_up_last() {
    let spec = Roll::Annotate(ObjectRef::default(), vec!["spec", "annotations"]);
    let (pods, annotated, changed) = ([pod("a")], live(Some("x")), live(Some(UNBOUND)));
    let base = Facts {
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
    let changed = Facts {
        live: &changed,
        released: Some(Duration::from_secs(3)),
        ..base
    };
    assert!(matches!(decide(&changed), Unbind::Wait(_)));
    let clean = Facts {
        pods: &[],
        ..changed
    };
    assert_eq!(decide(&clean), Unbind::Release);
}

/// BIND-45
#[test]
fn what_an_older_actor_has_there_stays() {
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
        decide(&Facts {
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
fn what_stands_in_a_template_is_given_up_once_and_its_controller_replaces_the_pods() {
    let template = Roll::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, mut standing) = ([pod("a")], live(None));
    standing[0].templated = true;
    let base = Facts {
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
    let without_pods = Facts {
        pods: &[],
        ..base.clone()
    };
    assert_eq!(decide(&without_pods), Unbind::Release, "at 0 replicas");
    let mut rolling = live(None);
    rolling[0].rolling = true;
    let released = Facts {
        live: &rolling,
        released: Some(Duration::from_secs(1)),
        ..base
    };
    assert!(matches!(decide(&released), Unbind::Wait(_)));
}

/// BIND-44
#[test]
fn a_paused_target_blocks_unless_it_is_to_be_skipped() {
    let template = Roll::AnnotateTemplate(vec![ObjectRef::default()]);
    let (pods, mut paused) = ([pod("a")], live(Some("x")));
    paused[0].paused = true;
    let base = Facts {
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
    assert_eq!(decide(&Facts { skip: true, ..base }), Unbind::Done);
}

/// SO-5, BIND-43: what tells the owner that the queue scales goes with what made pods roll, in one patch.
#[test]
fn claim_is_given_up_also_where_nothing_else_was_written() {
    let roll = Roll::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let claimed = [Live {
        claimed: true,
        ..Live::default()
    }];
    let pods = [pod("a")];
    let facts = |pods| Facts {
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
fn next_pod_is_evicted_when_what_came_for_the_last_is_ready_and_not_before() {
    let (pods, plain) = ([pod("a"), pod("b")], live(None));
    let unready = |name: &str| {
        vec![UnreadyPod {
            name: name.into(),
            uid: name.into(),
            created: None,
        }]
    };
    let decide = |availability: &Availability, since: i64| {
        decide(&Facts {
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
fn target_that_is_not_understood_holds_up_only_what_may_have_the_sidecar() {
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
        let told = decide(&Facts {
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
fn target_at_zero_is_woken_only_after_its_owner_had_time_to_write_the_template_of_before() {
    let parent = Roll::Annotate(ObjectRef::default(), vec!["metadata", "annotations"]);
    let (annotated, plain) = (live(Some("x")), live(None));
    let told = |live: &[Live], released: Option<u64>, asleep: bool| {
        decide(&Facts {
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
fn annotation_is_taken_back_from_where_status_says_it_stands_though_the_target_is_not_understood() {
    let why = Some(("its deploymentMode is ModelMesh", false));
    let decide = |live: &[Live], released| {
        decide(&Facts {
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
