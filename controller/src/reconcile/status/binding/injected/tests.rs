use asya_shared::api::{NotInjected, PodCounts};

use super::{injected_by_counts, remedy};
use crate::condition::ConditionStatus;
use crate::fault::Reason;

/// Counts of `matched` pods, of which those with these reasons have no sidecar.
fn counts(matched: i32, not_injected: &[(&str, i32)]) -> PodCounts {
    let reasons = not_injected.iter().map(|(reason, count)| NotInjected {
        reason: (*reason).to_owned(),
        count: *count,
        examples: vec![format!("first-of-{count}")],
    });
    let not_injected = not_injected.iter().map(|(_, count)| count).sum();
    PodCounts {
        matched,
        injected: matched - not_injected,
        not_injected,
        reasons: reasons.collect(),
        ..PodCounts::default()
    }
}

/// BIND-5, BIND-8
#[test]
fn condition_injected_follows_from_the_counts_of_the_pods() {
    use ConditionStatus::{False, True, Unknown};
    for (counts, status, reason) in [
        (counts(0, &[]), Unknown, Reason::NotProven),
        (counts(2, &[]), True, Reason::AllPodsInjected),
        (
            counts(2, &[("HostNetwork", 1)]),
            False,
            Reason::PodsNotInjected,
        ),
        (
            counts(2, &[("HostNetwork", 1), ("SpecConflict", 1)]),
            False,
            Reason::SpecConflict,
        ),
    ] {
        let condition = injected_by_counts(&counts);
        assert_eq!((condition.status, condition.reason), (status, reason));
        for not_injected in &counts.reasons {
            let text = &condition.message;
            assert!(text.contains(&*not_injected.reason), "{text}");
        }
    }
}

/// QUE-11
#[test]
fn condition_injected_does_not_change_with_every_pod() {
    let one = injected_by_counts(&counts(1, &[("StartedBeforeBinding", 1)]));
    let four = injected_by_counts(&counts(4, &[("StartedBeforeBinding", 4)]));
    assert_eq!(one, four);
}

/// BIND-7
#[test]
fn advice_fits_every_reason_that_it_is_given_for() {
    let restart = ["StartedBeforeBinding", "WebhookUnavailable"];
    let mixed = ["StartedBeforeBinding", "HostNetwork"];
    for (reasons, advice) in [
        (&restart[..], "restart those"),
        (&["NotProved"], "restart those"),
        (&["HostNetwork"], "the actor's Events say what to change"),
        (&mixed, "the actor's Events say what to change"),
        (&["OptedOut"], "remove the label asya.sh/inject"),
        (&["SpecConflict"], "rename the container or volume"),
    ] {
        assert!(remedy(reasons).contains(advice), "{reasons:?}");
    }
}
