use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::EvictionFacts;
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::rollout::{Availability, UnreadyPod};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn candidate(name: &str) -> OutdatedPod {
    OutdatedPod {
        name: name.into(),
        uid: name.into(),
        ..OutdatedPod::default()
    }
}

fn unready(name: &str, made: i64) -> UnreadyPod {
    UnreadyPod {
        name: name.into(),
        uid: name.into(),
        created: Some(Time(at(made))),
    }
}

/// Three pods are desired; one was evicted 100 s ago, and a replacement may take 60 s.
struct Row {
    candidates: Vec<OutdatedPod>,
    unready: Vec<UnreadyPod>,
    wanted: Option<i32>,
    present: i32,
    before: Option<i32>,
    since: Option<i64>,
    limit: Option<u64>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            candidates: vec![candidate("a"), candidate("b")],
            unready: Vec::new(),
            wanted: Some(3),
            present: 3,
            before: None,
            since: Some(-100),
            limit: Some(60),
        }
    }
}

impl Row {
    fn with<T>(&self, look: impl FnOnce(&EvictionFacts<'_>) -> T) -> T {
        let availability = Availability {
            unready: self.unready.clone(),
            present: self.present,
            going: false,
            wanted: self.wanted,
        };
        look(&EvictionFacts {
            candidates: &self.candidates,
            availability: &availability,
            present: self.present,
            before: self.before,
            since: self.since.map(at),
            limit: self.limit.map(Duration::from_secs),
            now: at(0),
        })
    }

    fn obstacle(&self) -> Option<(String, bool)> {
        self.with(|facts| facts.obstacle().map(|it| (it.text, it.is_overdue)))
    }

    fn next(&self) -> Option<String> {
        self.with(|facts| facts.next().map(|it| it.name.to_string()))
    }
}

/// SAFE-11
#[test]
fn ready_pod_is_evicted_only_while_all_others_exist_and_are_ready() {
    assert_eq!(Row::default().obstacle(), None);
    let told = |text: &str, overdue| Some((text.to_owned(), overdue));
    let row = Row::default;
    for (what, row, wanted) in [
        (
            "a replacement that is late",
            Row {
                unready: vec![unready("c", -61)],
                ..row()
            },
            told("pod c is not ready", true),
        ),
        (
            "one that has just come",
            Row {
                unready: vec![unready("c", -59)],
                ..row()
            },
            told("pod c is not ready", false),
        ),
        (
            "without a limit it is never late",
            Row {
                unready: vec![unready("c", -61)],
                limit: None,
                ..row()
            },
            told("pod c is not ready", false),
        ),
        (
            "nothing was evicted yet",
            Row {
                unready: vec![unready("c", -61)],
                since: None,
                ..row()
            },
            told("pod c is not ready", false),
        ),
        (
            "no replacement comes",
            Row {
                present: 2,
                ..row()
            },
            told("1 of 3 pods are missing", true),
        ),
        (
            "nobody says how many are asked for",
            Row {
                wanted: None,
                before: Some(3),
                present: 2,
                ..row()
            },
            told("1 of 3 pods are missing", true),
        ),
        (
            "fewer are asked for",
            Row {
                wanted: Some(2),
                before: Some(3),
                present: 2,
                ..row()
            },
            None,
        ),
        (
            "what is to be replaced may be unready",
            Row {
                unready: vec![unready("a", -900)],
                ..row()
            },
            None,
        ),
    ] {
        assert_eq!(row.obstacle(), wanted, "{what}");
    }
}

/// SAFE-11
#[test]
fn unready_pod_is_evicted_first() {
    assert_eq!(Row::default().next().as_deref(), Some("b"));
    let broken = Row {
        unready: vec![unready("a", -900)],
        ..Row::default()
    };
    assert_eq!(broken.next().as_deref(), Some("a"));
    let none = Row {
        candidates: Vec::new(),
        ..Row::default()
    };
    assert_eq!(none.next(), None);
}
