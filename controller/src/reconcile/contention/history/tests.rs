use std::time::Duration;

use asya_shared::api::BindingConflict;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    FieldEvent, FieldLoss, Forgiven, count, follow, forgiven, last, losses, state, text, told,
};
use crate::reconcile::contention::{Losses, Part, Specs, State};

const BASE: Duration = Duration::from_secs(5);
const UID: &str = "target-uid";

fn at(millisecond: i64) -> Timestamp {
    Timestamp::from_millisecond(millisecond).unwrap()
}

fn specs() -> Specs {
    Specs {
        generation: 3,
        target: "spec".to_owned(),
    }
}

fn lost(rival: Option<&str>) -> FieldEvent {
    FieldEvent::Lost(FieldLoss {
        field: "spec.template.metadata.annotations[asya.sh/roll]".to_owned(),
        object: "Deployment/model".to_owned(),
        rival: rival.map(str::to_owned),
        specs: specs(),
        last: false,
    })
}

fn then(before: &[BindingConflict], part: Part, news: FieldEvent) -> Vec<BindingConflict> {
    let after = follow(before, Some(UID), &[(part, news)], BASE, at(1_500));
    // As the next process would read it.
    serde_json::from_value(json!(after)).unwrap()
}

/// CONF-6
#[test]
fn a_restart_resumes_each_state() {
    let mut entries = Vec::new();
    for number in 1..5 {
        entries = then(&entries, Part::Roll, lost(Some("argocd")));
        let losses = Losses::new(number).unwrap();
        let until = at(1_500 + 5_000 * (1 << number));
        let until = Timestamp::from_second(until.as_second() + 1).unwrap();
        let waiting = State::Waiting(losses, until);
        assert_eq!(state(&entries, UID, Part::Roll), waiting, "never sooner");
        entries = then(&entries, Part::Roll, FieldEvent::Written);
        assert_eq!(state(&entries, UID, Part::Roll), State::Held(losses));
    }
    entries = then(&entries, Part::Roll, lost(None));
    let stopped = State::Stopped(specs());
    assert_eq!(state(&entries, UID, Part::Roll), stopped);
    assert_eq!(state(&entries, UID, Part::ScaledObject), State::Idle);
    assert_eq!(state(&entries, "another", Part::Roll), State::Idle);
    assert_eq!(count(&entries), 5);
    assert_eq!(last(&entries).unwrap().0, at(1_000));
    entries = then(&entries, Part::Roll, FieldEvent::Needless);
    assert_eq!(state(&entries, UID, Part::Roll), State::Idle);
    assert_eq!(count(&entries), 5, "what was, was");
}

/// BIND-41, CONF-6
#[test]
fn losses_of_all_fields_are_counted_per_target() {
    let mut entries = then(&[], Part::Roll, lost(Some("argocd")));
    entries = then(&entries, Part::ScaledObject, lost(None));
    entries = then(&entries, Part::Roll, lost(None));
    assert_eq!((entries.len(), count(&entries)), (2, 3));
    let unknown = follow(&entries, None, &[], BASE, at(0));
    assert_eq!(unknown, entries, "nobody can tell just now");
    let other = follow(&entries, Some("another"), &[], BASE, at(0));
    assert_eq!((other.len(), count(&other), last(&other)), (0, 0, None));
    for news in [FieldEvent::Written, FieldEvent::Needless] {
        assert_eq!(then(&[], Part::Roll, news), []);
    }
}

/// CONF-6
#[test]
fn loss_is_reported_once() {
    let first = then(&[], Part::Roll, lost(None));
    let second = then(&first, Part::Roll, lost(None));
    let other = then(&second, Part::ScaledObject, lost(None));
    let parts = |before: &[_], after: &[BindingConflict]| {
        let all = losses(before, after).map(|it| it.part.clone());
        all.collect::<Vec<_>>()
    };
    assert_eq!(parts(&[], &first), ["Roll"]);
    assert_eq!(parts(&first, &second), ["Roll"]);
    assert_eq!(parts(&second, &other), ["ScaledObject"]);
    assert_eq!(parts(&other, &other), [""; 0]);
    let written = then(&other, Part::Roll, FieldEvent::Written);
    assert_eq!(parts(&other, &written), [""; 0]);
}

/// CONF-5
#[test]
fn losses_are_forgotten_after_a_field_was_left_alone_for_long() {
    let part = Part::ScaledObject;
    let entries = then(&[], part, lost(None));
    let at_minute = |minute: i64| forgiven(&entries, UID, part, at(1_000 + minute * 60_000));
    let rest = Forgiven::In(Duration::from_mins(1));
    assert_eq!(at_minute(14), rest);
    assert_eq!(at_minute(15), Forgiven::Now);
    assert_eq!(forgiven(&entries, UID, Part::Roll, at(0)), Forgiven::Now);
    let over = then(&entries, part, FieldEvent::Needless);
    assert_eq!(forgiven(&over, UID, part, at(1_000)), Forgiven::Now);
}

/// CONF-9
#[test]
fn message_names_the_field_the_rival_the_consequence_and_the_remedy() {
    let mut entries = then(&[], Part::Roll, lost(Some("argocd-controller (Update)")));
    let first = told(&entries, false).unwrap();
    assert_eq!(
        first,
        "Deployment/model: spec.template.metadata.annotations[asya.sh/roll] was lost to argocd-controller (Update); it is written again after a pause, five times at most; let that manager ignore this annotation, or set spec.binding.rollout to OnRestart and restart the pods yourself"
    );
    for _ in 0..4 {
        entries = then(&entries, Part::Roll, lost(None));
    }
    let stopped = told(&entries, false).unwrap();
    assert!(
        stopped.contains(
            " was lost 5 times to another field manager (unknown); it is not written any more"
        ),
        "{stopped}"
    );
    let evicts = told(&entries, true).unwrap();
    assert!(evicts.contains("evicted one by one"), "{evicts}");
    let two = then(&entries, Part::ScaledObject, lost(None));
    assert_eq!(told(&two, false).unwrap().lines().count(), 2);
    let over = then(&entries, Part::Roll, FieldEvent::Needless);
    assert_eq!(told(&over, false), None);
    let mut texts: Vec<_> = Part::ALL
        .into_iter()
        .flat_map(|part| [text(&entries[0], part, false), text(&two[1], part, false)])
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(
        texts.len(),
        2 * Part::ALL.len(),
        "each says something of its own"
    );
}

/// CONF-2, CONF-9
#[test]
fn loss_that_leads_to_eviction_is_final_whatever_its_number() {
    let FieldEvent::Lost(loss) = lost(None) else {
        panic!()
    };
    let last = FieldEvent::Lost(FieldLoss { last: true, ..loss });
    let entries = then(&[], Part::Roll, last);
    assert_eq!(state(&entries, UID, Part::Roll), State::Stopped(specs()));
    let told = |evicts| text(&entries[0], Part::Roll, evicts);
    assert!(!told(true).contains(" times"), "{}", told(true));
    assert!(told(false).contains(" 5 times"), "{}", told(false));
}

#[test]
fn last_conflict_is_the_newest_of_all_fields() {
    let first = then(&[], Part::Roll, lost(None));
    let news = [(Part::ScaledObject, lost(None))];
    let both = follow(&first, Some(UID), &news, BASE, at(9_000));
    assert_eq!(last(&both).unwrap().0, at(9_000));
}
