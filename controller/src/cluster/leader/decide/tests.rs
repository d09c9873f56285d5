#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::LazyLock;

use super::*;

const ME: &str = "me";

static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

fn after(seconds: u64) -> Instant {
    *ZERO + Duration::from_secs(seconds)
}

fn lease<'a>(holder: &'a str, version: &'a str, seconds: u64) -> LeaseView<'a> {
    LeaseView {
        holder,
        version,
        duration: Duration::from_secs(seconds),
    }
}

/// The decisions of `ME`, observation by observation.
fn decisions(observations: &[(u64, Option<LeaseView<'_>>)]) -> Vec<Decision> {
    decisions_if(true, observations)
}

fn decisions_if(is_ready: bool, observations: &[(u64, Option<LeaseView<'_>>)]) -> Vec<Decision> {
    let mut observed = None;
    let decide = |(at, lease): &(u64, _)| decide(*lease, ME, is_ready, &mut observed, after(*at));
    observations.iter().map(decide).collect()
}

fn standby_until(seconds: u64) -> Decision {
    Decision::Standby {
        recheck_at: after(seconds),
    }
}

#[test]
fn missing_lease_is_created() {
    assert_eq!(decisions(&[(0, None)]), [Decision::Create]);
}

#[test]
fn lease_without_a_holder_is_acquired_at_once() {
    assert_eq!(
        decisions(&[(0, Some(lease("", "1", 10)))]),
        [Decision::Acquire]
    );
}

#[test]
fn released_lease_is_acquired_at_once() {
    let observations = [
        (0, Some(lease("other", "1", 10))),
        (1, Some(lease("", "2", 10))),
    ];
    assert_eq!(
        decisions(&observations),
        [standby_until(1), Decision::Acquire]
    );
}

#[test]
fn own_lease_is_renewed_at_any_age() {
    let observations = [
        (0, Some(lease(ME, "1", 10))),
        (100, Some(lease(ME, "1", 10))),
    ];
    assert_eq!(decisions(&observations), [Decision::Renew, Decision::Renew]);
}

#[test]
fn previous_process_of_the_same_pod_is_another_holder() {
    let (previous, now) = (
        super::super::identity("pod-0"),
        super::super::identity("pod-0"),
    );
    assert!(previous.starts_with("pod-0_"));
    let mut observed = None;
    let decision = decide(
        Some(lease(&previous, "1", 10)),
        &now,
        true,
        &mut observed,
        after(0),
    );
    assert_eq!(decision, standby_until(1));
}

#[test]
fn lease_unchanged_for_its_duration_is_acquired() {
    let lease_of_other = Some(lease("other", "1", 10));
    let observations = [
        (0, lease_of_other),
        (1, lease_of_other),
        (9, lease_of_other),
        (10, lease_of_other),
    ];
    let expected = [
        standby_until(1),
        standby_until(2),
        standby_until(10),
        Decision::Acquire,
    ];
    assert_eq!(decisions(&observations), expected);
}

#[test]
fn next_read_is_no_later_than_the_lease_expiry() {
    let mut observed = None;
    let lease_of_other = Some(lease("other", "1", 10));
    decide(lease_of_other, ME, true, &mut observed, after(0));
    let late = after(9) + Duration::from_millis(900);
    assert_eq!(
        decide(lease_of_other, ME, true, &mut observed, late),
        standby_until(10)
    );
}

#[test]
fn each_renewal_starts_the_wait_again() {
    let observations = [
        (0, Some(lease("other", "1", 10))),
        (9, Some(lease("other", "2", 10))),
        (18, Some(lease("third", "3", 10))),
        (27, Some(lease("third", "3", 10))),
        (28, Some(lease("third", "3", 10))),
    ];
    let expected = [
        standby_until(1),
        standby_until(10),
        standby_until(19),
        standby_until(28),
        Decision::Acquire,
    ];
    assert_eq!(decisions(&observations), expected);
}

#[test]
fn duration_of_the_holder_applies() {
    let (long, short) = (Some(lease("other", "1", 30)), Some(lease("other", "2", 3)));
    assert_eq!(decisions(&[(0, long), (29, long)])[1], standby_until(30));
    assert_eq!(decisions(&[(0, short), (3, short)])[1], Decision::Acquire);
}

#[test]
fn deleted_lease_is_not_recreated_before_it_would_have_expired() {
    let observations = [(0, Some(lease("other", "1", 10))), (1, None), (10, None)];
    assert_eq!(
        decisions(&observations),
        [standby_until(1), standby_until(2), Decision::Create]
    );
}

#[test]
fn holder_recreates_a_deleted_lease_at_once() {
    let observations = [
        (0, Some(lease("other", "1", 10))),
        (1, Some(lease(ME, "2", 10))),
        (2, None),
    ];
    assert_eq!(
        decisions(&observations)[1..],
        [Decision::Renew, Decision::Create]
    );
}

#[test]
fn lease_without_holder_or_duration_is_handled() {
    let mut record = Lease::default();
    assert_eq!(
        (
            LeaseView::of(&record).holder,
            LeaseView::of(&record).duration
        ),
        ("", LEASE_DURATION)
    );
    for (seconds, duration) in [
        (-5, LEASE_DURATION),
        (0, LEASE_DURATION),
        (15, Duration::from_secs(15)),
    ] {
        record.spec.get_or_insert_default().lease_duration_seconds = Some(seconds);
        assert_eq!(LeaseView::of(&record).duration, duration);
    }
}

/// FW-11
#[test]
fn unready_candidate_waits_longer_for_a_lease_that_others_may_take() {
    let (free, held, own) = (
        Some(lease("", "1", 10)),
        Some(lease("other", "1", 10)),
        Some(lease(ME, "1", 10)),
    );
    let unready = |observations: &[_]| decisions_if(false, observations);
    let wait_for_others = [standby_until(1), standby_until(15), Decision::Acquire];
    assert_eq!(
        unready(&[(0, free), (14, free), (15, free)]),
        wait_for_others
    );
    let wait_for_others = [standby_until(1), standby_until(25), Decision::Acquire];
    assert_eq!(
        unready(&[(0, held), (24, held), (25, held)]),
        wait_for_others
    );
    let deleted = [(0, held), (1, None), (24, None), (25, None)];
    assert_eq!(
        unready(&deleted)[2..],
        [standby_until(25), Decision::Create]
    );
    let taken = [(0, free), (14, Some(lease("", "2", 10)))];
    assert_eq!(unready(&taken)[1], standby_until(15), "another had it");
    assert_eq!(unready(&[(0, own)]), [Decision::Renew]);
    assert_eq!(unready(&[(0, None)]), [Decision::Create], "a first install");
}
