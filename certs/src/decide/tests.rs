#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use super::{Step, Why, decide};
use crate::bundle::{Bundle, Fault};
use crate::data::{AUTHORITIES, AUTHORITY_KEY, LEAF, LEAF_KEY, NEXT, NEXT_KEY};
use crate::testing::{DAY, Held, ago, authority, hence, names, now, settings};

const MINUTE: Duration = Duration::from_mins(1);

fn step(held: &Held) -> Step {
    decided(held, None, None, now())
}

fn decided(
    held: &Held,
    since: Option<Timestamp>,
    trusted_for: Option<u64>,
    now: Timestamp,
) -> Step {
    let since = since.map(|since| since.to_string());
    let bundle = Bundle::read(&held.0, since.as_deref());
    decide(
        &bundle,
        trusted_for.map(Duration::from_secs),
        &settings(),
        now,
    )
}

fn renew(fault: Fault) -> Step {
    Step::Renew(Why::Fault(fault))
}

/// CERT-5
#[test]
fn every_fault_is_repaired_and_a_usable_ca_is_kept() {
    let (ours, other) = (authority(ago(DAY)), authority(ago(DAY)));
    let (old, expired) = (authority(ago(40 * DAY)), authority(ago(366 * DAY)));
    let usual = || Held::usual(&ours, ago(DAY));
    let others_key = Held::usual(&other, ago(DAY));
    let others_key = std::str::from_utf8(others_key.0.get(LEAF_KEY).unwrap()).unwrap();
    let mismatch = |key, certificate| Fault::Mismatch { key, certificate };
    let nameless = {
        let mut settings = settings();
        settings.names.truncate(2);
        usual().leaf(&ours, &settings, ago(DAY))
    };
    let cases = [
        (usual(), Step::Keep),
        (Held::default(), Step::Mint(Fault::Missing(LEAF))),
        // Only the leaf is bad: the same CA issues a new one.
        (usual().without(LEAF), renew(Fault::Missing(LEAF))),
        (usual().without(LEAF_KEY), renew(Fault::Missing(LEAF_KEY))),
        (usual().with(LEAF, "x"), renew(Fault::Unreadable(LEAF))),
        (
            usual().with(LEAF_KEY, "x"),
            renew(Fault::Unreadable(LEAF_KEY)),
        ),
        (
            usual().with(LEAF_KEY, others_key),
            renew(mismatch(LEAF_KEY, LEAF)),
        ),
        (usual().leaf_of(&other, ago(DAY)), renew(Fault::Untrusted)),
        (nameless, renew(Fault::Name(names()[2].clone()))),
        (
            usual().leaf_of(&ours, ago(31 * DAY)),
            renew(Fault::Expired(LEAF)),
        ),
        (
            usual().leaf_of(&ours, hence(DAY)),
            renew(Fault::NotYetValid(LEAF)),
        ),
        // Only the CA key is bad: the leaf stays in use while the next CA is rolled out.
        (
            usual().without(AUTHORITY_KEY),
            Step::Prepare(Why::Fault(Fault::Missing(AUTHORITY_KEY))),
        ),
        (
            usual().signer(&other),
            Step::Prepare(Why::Fault(mismatch(AUTHORITY_KEY, AUTHORITIES))),
        ),
        // Both are bad: start over.
        (usual().without(AUTHORITIES), Step::Mint(Fault::Untrusted)),
        (usual().with(AUTHORITIES, "x"), Step::Mint(Fault::Untrusted)),
        (
            usual().trusting(&[&other.certificate]),
            Step::Mint(Fault::Untrusted),
        ),
        (
            usual().with(AUTHORITY_KEY, "x").with(LEAF_KEY, "x"),
            Step::Mint(Fault::Unreadable(LEAF_KEY)),
        ),
        // All expired, or a clock was set back by more than the age of the CA.
        (
            Held::usual(&authority(ago(400 * DAY)), ago(380 * DAY)),
            Step::Mint(Fault::Expired(LEAF)),
        ),
        (
            Held::usual(&authority(hence(DAY)), hence(DAY)),
            Step::Mint(Fault::NotYetValid(LEAF)),
        ),
        // A next CA that is unusable, and not due either.
        (usual().with(NEXT, "x"), Step::Retire),
        (usual().next(&other).without(NEXT_KEY), Step::Retire),
        // A CA that is no longer needed.
        (
            Held::usual(&old, now()).trusting(&[&other.certificate, &old.certificate]),
            Step::Retire,
        ),
        (
            usual().trusting(&[&expired.certificate, &ours.certificate]),
            Step::Retire,
        ),
    ];
    for (number, (held, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(step(&held), wanted, "case {number}");
    }
}

/// CERT-5, CERT-4
#[test]
fn prepared_ca_takes_over_before_another_is_created() {
    let (ours, next) = (authority(ago(DAY)), authority(ago(MINUTE)));
    let broken = Held::usual(&ours, ago(DAY))
        .next(&next)
        .with(LEAF, "x")
        .with(AUTHORITY_KEY, "x");
    assert_eq!(step(&broken), Step::Switch);
    let unusable = broken.with(NEXT_KEY, "x");
    assert_eq!(step(&unusable), Step::Mint(Fault::Unreadable(LEAF)));
}

/// CERT-1
#[test]
fn a_leaf_is_renewed_after_two_thirds_of_its_life() {
    let ours = authority(now());
    let held = Held::usual(&ours, now());
    for (age, wanted) in [
        ((20 * DAY).saturating_sub(MINUTE), Step::Keep),
        (20 * DAY, Step::Renew(Why::Due)),
        (29 * DAY, Step::Renew(Why::Due)),
    ] {
        assert_eq!(decided(&held, None, None, hence(age)), wanted, "{age:?}");
    }
}

/// CERT-4
#[test]
fn an_authority_is_replaced_after_two_thirds_of_its_life() {
    let ours = authority(now());
    let due = 365 * DAY * 2 / 3;
    for (age, wanted) in [
        (due.saturating_sub(MINUTE), Step::Keep),
        (due, Step::Prepare(Why::Due)),
    ] {
        let held = Held::usual(&ours, hence(age.saturating_sub(DAY)));
        assert_eq!(decided(&held, None, None, hence(age)), wanted, "{age:?}");
    }
}

/// CERT-4
#[test]
fn each_step_of_a_rotation_follows_from_the_secret() {
    let (ours, next) = (authority(ago(300 * DAY)), authority(ago(MINUTE)));
    let usual = Held::usual(&ours, ago(DAY));
    let prepared = usual.clone().next(&next);
    let both = [&ours.certificate, &next.certificate];
    let widened = prepared.clone().trusting(&both);
    let switched = Held::usual(&next, now()).trusting(&both);
    let old = widened.clone().leaf_of(&ours, ago(25 * DAY));
    let ended = ago(30 * DAY);
    let cases = [
        ("due", &usual, None, None, Step::Prepare(Why::Due)),
        (
            "due and trusted",
            &usual,
            None,
            Some(99),
            Step::Prepare(Why::Due),
        ),
        ("prepared", &prepared, None, None, Step::Widen),
        (
            "prepared, not in the bundle",
            &prepared,
            None,
            Some(99),
            Step::Widen,
        ),
        ("widened", &widened, None, None, Step::Await),
        ("just trusted", &widened, None, Some(0), Step::Await),
        (
            "nearly trusted for long enough",
            &widened,
            None,
            Some(29),
            Step::Await,
        ),
        (
            "trusted for long enough",
            &widened,
            None,
            Some(30),
            Step::Switch,
        ),
        ("never trusted", &old, None, None, Step::Renew(Why::Due)),
        (
            "trusted, and the leaf is due",
            &old,
            None,
            Some(30),
            Step::Switch,
        ),
        ("switched", &switched, Some(now()), Some(99), Step::Keep),
        (
            "old leaves may be served",
            &switched,
            Some(ended + MINUTE),
            Some(99),
            Step::Keep,
        ),
        (
            "no old leaf is served",
            &switched,
            Some(ended),
            None,
            Step::Retire,
        ),
        (
            "nobody knows since when: since the new authority",
            &switched,
            None,
            None,
            Step::Keep,
        ),
        (
            "it says later than now",
            &switched,
            Some(hence(DAY)),
            None,
            Step::Keep,
        ),
    ];
    for (name, held, since, trusted_for, wanted) in cases {
        assert_eq!(decided(held, since, trusted_for, now()), wanted, "{name}");
    }
    let late = decided(&switched, None, None, hence(29 * DAY));
    assert_eq!(late, Step::Renew(Why::Due), "the leaf goes first");
    let renewed = switched.leaf_of(&next, hence(29 * DAY));
    let late = decided(&renewed, None, None, hence(30 * DAY));
    assert_eq!(late, Step::Retire);
}

/// CERT-4
#[test]
fn stalled_rotation_does_not_renew_the_leaf_needlessly() {
    let (ours, next) = (authority(ago(350 * DAY)), authority(ago(MINUTE)));
    let widened = Held::usual(&ours, ago(DAY))
        .next(&next)
        .trusting(&[&ours.certificate, &next.certificate]);
    // The leaf already expires with its CA: a new one could not live longer.
    for days in 0..14 {
        let step = decided(&widened, None, None, hence(days * DAY));
        assert_eq!(step, Step::Await, "day {days}");
    }
    let step = decided(&widened, None, None, hence(15 * DAY));
    assert_eq!(step, Step::Switch, "there is nothing else to serve");
}
