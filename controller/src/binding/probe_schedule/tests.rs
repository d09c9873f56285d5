use std::collections::HashSet;
use std::time::Duration;

use tokio::time::advance;

use super::{NextProbe, ProbeSchedule};
use crate::binding::dry_run::ProbeFailure;
use crate::record::Key;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn rejected() -> ProbeFailure {
    ProbeFailure::Rejected("exceeded quota".to_owned())
}

fn not_called() -> ProbeFailure {
    ProbeFailure::NotCalled("the webhook was not called".to_owned())
}

/// SAFE-4
#[tokio::test(start_paused = true)]
async fn rejected_probe_backs_off_until_a_change_requests_another() {
    let schedule = ProbeSchedule::default();
    let actor = key("a");
    assert_eq!(schedule.next_probe(&actor), NextProbe::default());
    let mut waits = Vec::new();
    for _ in 0..6 {
        let wait = schedule.record_failure(&actor, rejected(), false);
        assert_eq!(schedule.next_probe(&actor).wait, Some(wait));
        advance(wait).await;
        assert_eq!(schedule.next_probe(&actor).wait, None);
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [30, 60, 120, 240, 300, 300]);

    schedule.record_failure(&actor, rejected(), false);
    schedule.request(&actor);
    let next = schedule.next_probe(&actor);
    assert!(next.requested);
    assert_eq!(
        next.wait,
        Some(Duration::from_secs(2)),
        "changes do not bypass the minimum interval"
    );
    advance(Duration::from_secs(2)).await;
    assert_eq!(schedule.next_probe(&actor).wait, None);
    let wait = schedule.record_failure(&actor, rejected(), false);
    assert_eq!(
        (wait.as_secs(), schedule.next_probe(&actor).requested),
        (30, false)
    );
    schedule.record_admitted(&actor);
    let next = schedule.next_probe(&actor);
    assert_eq!((next.wait, next.failed), (None, None));
}

/// SAFE-5
#[tokio::test(start_paused = true)]
async fn actors_waiting_for_the_webhook_share_one_interval_until_the_first_success() {
    let schedule = ProbeSchedule::default();
    let waits = [("a", 2), ("b", 4), ("c", 6), ("a", 6)];
    for (name, seconds) in waits {
        let wait = schedule.record_failure(&key(name), not_called(), false);
        assert_eq!(wait.as_secs(), seconds, "{name}");
    }
    let skipped = ProbeFailure::NotInjected("HostNetwork".to_owned());
    schedule.record_failure(&key("other"), skipped, false);
    assert!(schedule.take_unblocked().is_empty());
    schedule.record_admitted(&key("b"));
    let unblocked: HashSet<_> = [key("a"), key("c")].into();
    assert_eq!(schedule.take_unblocked(), unblocked);
    assert!(schedule.take_unblocked().is_empty(), "returned only once");
    assert_eq!(schedule.next_probe(&key("a")).wait, None);
    assert!(schedule.next_probe(&key("other")).wait.is_some());
    schedule.forget(&key("a"));
    assert_eq!(schedule.next_probe(&key("a")), NextProbe::default());

    for number in 0..100 {
        let wait = schedule.record_failure(&key(&format!("many-{number}")), not_called(), false);
        assert!(wait <= Duration::from_mins(1));
    }
}

/// SAFE-4
#[tokio::test(start_paused = true)]
async fn probe_is_retried_after_a_second_while_the_webhook_may_lag() {
    let schedule = ProbeSchedule::default();
    let actor = key("a");
    for failure in [not_called(), rejected()] {
        assert_eq!(schedule.record_failure(&actor, failure, true).as_secs(), 1);
    }
}
