use std::collections::HashSet;
use std::time::Duration;

use tokio::time::advance;

use super::{Failure, Probes, Turn};
use crate::record::Key;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn refused() -> Failure {
    Failure::Refused("exceeded quota".to_owned())
}

fn unasked() -> Failure {
    Failure::Unasked("the webhook was not called".to_owned())
}

/// SAFE-4
#[tokio::test(start_paused = true)]
async fn refused_probe_backs_off_until_a_change_requests_another() {
    let (probes, actor) = (Probes::default(), key("a"));
    assert_eq!(probes.turn(&actor), Turn::default());
    let mut waits = Vec::new();
    for _ in 0..6 {
        let wait = probes.failed(&actor, refused(), false);
        assert_eq!(probes.turn(&actor).wait, Some(wait));
        advance(wait).await;
        assert_eq!(probes.turn(&actor).wait, None);
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [30, 60, 120, 240, 300, 300]);

    probes.failed(&actor, refused(), false);
    probes.request(&actor);
    let turn = probes.turn(&actor);
    assert!(turn.requested);
    assert_eq!(turn.wait, Some(Duration::from_secs(2)), "not many a second");
    advance(Duration::from_secs(2)).await;
    assert_eq!(probes.turn(&actor).wait, None);
    let wait = probes.failed(&actor, refused(), false);
    assert_eq!((wait.as_secs(), probes.turn(&actor).requested), (30, false));
    probes.admitted(&actor);
    let turn = probes.turn(&actor);
    assert_eq!((turn.wait, turn.failed), (None, None));
}

/// SAFE-5
#[tokio::test(start_paused = true)]
async fn actors_waiting_for_the_webhook_share_one_interval_and_wake_on_first_success() {
    let probes = Probes::default();
    let waits = [("a", 2), ("b", 4), ("c", 6), ("a", 6)];
    for (name, seconds) in waits {
        let wait = probes.failed(&key(name), unasked(), false);
        assert_eq!(wait.as_secs(), seconds, "{name}");
    }
    let left_alone = Failure::LeftAlone("HostNetwork".to_owned());
    probes.failed(&key("other"), left_alone, false);
    assert!(probes.woken().is_empty());
    probes.admitted(&key("b"));
    let woken: HashSet<_> = [key("a"), key("c")].into();
    assert_eq!(probes.woken(), woken);
    assert!(probes.woken().is_empty(), "once");
    assert_eq!(probes.turn(&key("a")).wait, None);
    assert!(probes.turn(&key("other")).wait.is_some());
    probes.forget(&key("a"));
    assert_eq!(probes.turn(&key("a")), Turn::default());

    for number in 0..100 {
        let wait = probes.failed(&key(&format!("many-{number}")), unasked(), false);
        assert!(wait <= Duration::from_mins(1));
    }
}

/// SAFE-4
#[tokio::test(start_paused = true)]
async fn probe_is_retried_after_a_second_while_status_settles() {
    let (probes, actor) = (Probes::default(), key("a"));
    for failure in [unasked(), refused()] {
        assert_eq!(probes.failed(&actor, failure, true).as_secs(), 1);
    }
}
