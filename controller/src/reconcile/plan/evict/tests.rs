use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::EvictionInputs;
use crate::reconcile::model::availability::{Availability, UnreadyPod};
use crate::reconcile::model::target_pods::PodToReplace;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn candidate(name: &str) -> PodToReplace {
    PodToReplace {
        name: name.into(),
        uid: name.into(),
        ..PodToReplace::default()
    }
}

fn unready(name: &str, created: i64) -> UnreadyPod {
    UnreadyPod {
        name: name.into(),
        uid: name.into(),
        created: Some(Time(at(created))),
    }
}

/// Three pods are desired; one was evicted 100 s ago, and a replacement may take 60 s.
struct Row {
    candidates: Vec<PodToReplace>,
    unready: Vec<UnreadyPod>,
    desired: Option<i32>,
    active: i32,
    previous_pods: Option<i32>,
    since: Option<i64>,
    limit: Option<u64>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            candidates: vec![candidate("a"), candidate("b")],
            unready: Vec::new(),
            desired: Some(3),
            active: 3,
            previous_pods: None,
            since: Some(-100),
            limit: Some(60),
        }
    }
}

impl Row {
    fn with<T>(&self, query: impl FnOnce(&EvictionInputs<'_>) -> T) -> T {
        let availability = Availability {
            unready: self.unready.clone(),
            active: self.active,
            has_terminating: false,
            desired_replicas: self.desired,
            source: None,
        };
        query(&EvictionInputs {
            candidates: &self.candidates,
            availability: &availability,
            active: self.active,
            previous_pods: self.previous_pods,
            requested_at: self.since.map(at),
            limit: self.limit.map(Duration::from_secs),
            now: at(0),
        })
    }

    fn blocker(&self) -> Option<(String, bool)> {
        self.with(|inputs| {
            inputs
                .blocker()
                .map(|blocker| (blocker.text, blocker.readiness_overdue))
        })
    }

    fn next(&self) -> Option<String> {
        self.with(|inputs| inputs.next_candidate().map(|it| it.name.to_string()))
    }
}

/// ROLL-4 (b), SAFE-11
#[test]
fn ready_pod_is_evicted_only_while_all_others_exist_and_are_ready() {
    assert_eq!(Row::default().blocker(), None);
    let blocked = |text: &str, blocker| Some((text.to_owned(), blocker));
    let row = Row::default;
    for (case, row, expected) in [
        (
            "replacement is overdue",
            Row {
                unready: vec![unready("c", -61)],
                ..row()
            },
            blocked("pod c is not ready", true),
        ),
        (
            "replacement is recent",
            Row {
                unready: vec![unready("c", -59)],
                ..row()
            },
            blocked("pod c is not ready", false),
        ),
        (
            "never overdue without a limit",
            Row {
                unready: vec![unready("c", -61)],
                limit: None,
                ..row()
            },
            blocked("pod c is not ready", false),
        ),
        (
            "no earlier eviction",
            Row {
                unready: vec![unready("c", -61)],
                since: None,
                ..row()
            },
            blocked("pod c is not ready", false),
        ),
        (
            "replacement is missing",
            Row { active: 2, ..row() },
            blocked("1 of 3 pods do not exist", true),
        ),
        (
            "desired number is unknown",
            Row {
                desired: None,
                previous_pods: Some(3),
                active: 2,
                ..row()
            },
            blocked("1 of 3 pods do not exist", true),
        ),
        (
            "fewer are desired",
            Row {
                desired: Some(2),
                previous_pods: Some(3),
                active: 2,
                ..row()
            },
            None,
        ),
        (
            "candidates may be unready",
            Row {
                unready: vec![unready("a", -900)],
                ..row()
            },
            None,
        ),
    ] {
        assert_eq!(row.blocker(), expected, "{case}");
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
