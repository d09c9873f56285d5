#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use super::{RenewalReason, Step, decide};
use crate::data::{CA_BUNDLE, CA_KEY, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::parsed_secret::{ParsedSecret, SecretFault};
use crate::testing::{DAY, SecretBuilder, ago, hence, names, new_ca, now, settings};

const MINUTE: Duration = Duration::from_mins(1);

fn step(secret: &SecretBuilder) -> Step {
    decided(secret, None, None, now())
}

fn decided(
    secret: &SecretBuilder,
    since: Option<Timestamp>,
    trusted_for: Option<u64>,
    now: Timestamp,
) -> Step {
    let since = since.map(|since| since.to_string());
    let parsed = ParsedSecret::read(&secret.0, since.as_deref());
    decide(
        &parsed,
        trusted_for.map(Duration::from_secs),
        &settings(),
        now,
    )
}

fn renew(fault: SecretFault) -> Step {
    Step::Renew(RenewalReason::Fault(fault))
}

/// CERT-5
#[test]
fn every_fault_is_repaired_and_a_usable_ca_is_kept() {
    let (ca, other) = (new_ca(ago(DAY)), new_ca(ago(DAY)));
    let (old, expired) = (new_ca(ago(40 * DAY)), new_ca(ago(366 * DAY)));
    let valid = || SecretBuilder::usual(&ca, ago(DAY));
    let other_key = SecretBuilder::usual(&other, ago(DAY));
    let other_key = std::str::from_utf8(other_key.0.get(LEAF_KEY).unwrap()).unwrap();
    let mismatch = |key, certificate| SecretFault::Mismatch { key, certificate };
    let without_name = {
        let mut settings = settings();
        settings.names.truncate(2);
        valid().leaf(&ca, &settings, ago(DAY))
    };
    let cases = [
        (valid(), Step::Keep),
        (
            SecretBuilder::default(),
            Step::Create(SecretFault::Missing(LEAF)),
        ),
        // Only the leaf is unusable: the same CA issues a new one.
        (valid().without(LEAF), renew(SecretFault::Missing(LEAF))),
        (
            valid().without(LEAF_KEY),
            renew(SecretFault::Missing(LEAF_KEY)),
        ),
        (
            valid().with(LEAF, "x"),
            renew(SecretFault::Unreadable(LEAF)),
        ),
        (
            valid().with(LEAF_KEY, "x"),
            renew(SecretFault::Unreadable(LEAF_KEY)),
        ),
        (
            valid().with(LEAF_KEY, other_key),
            renew(mismatch(LEAF_KEY, LEAF)),
        ),
        (
            valid().leaf_of(&other, ago(DAY)),
            renew(SecretFault::Untrusted),
        ),
        (without_name, renew(SecretFault::Name(names()[2].clone()))),
        (
            valid().leaf_of(&ca, ago(31 * DAY)),
            renew(SecretFault::Expired(LEAF)),
        ),
        (
            valid().leaf_of(&ca, hence(DAY)),
            renew(SecretFault::NotYetValid(LEAF)),
        ),
        // Only the CA key is unusable: the leaf stays in use while the next CA is rolled out.
        (
            valid().without(CA_KEY),
            Step::Prepare(RenewalReason::Fault(SecretFault::Missing(CA_KEY))),
        ),
        (
            valid().current_ca(&other),
            Step::Prepare(RenewalReason::Fault(mismatch(CA_KEY, CA_BUNDLE))),
        ),
        // Both are unusable: start over.
        (
            valid().without(CA_BUNDLE),
            Step::Create(SecretFault::Untrusted),
        ),
        (
            valid().with(CA_BUNDLE, "x"),
            Step::Create(SecretFault::Untrusted),
        ),
        (
            valid().trusting(&[&other.certificate]),
            Step::Create(SecretFault::Untrusted),
        ),
        (
            valid().with(CA_KEY, "x").with(LEAF_KEY, "x"),
            Step::Create(SecretFault::Unreadable(LEAF_KEY)),
        ),
        // Everything has expired, or a clock was set back by more than the age of the CA.
        (
            SecretBuilder::usual(&new_ca(ago(400 * DAY)), ago(380 * DAY)),
            Step::Create(SecretFault::Expired(LEAF)),
        ),
        (
            SecretBuilder::usual(&new_ca(hence(DAY)), hence(DAY)),
            Step::Create(SecretFault::NotYetValid(LEAF)),
        ),
        // The next CA is unusable, and no next CA is due.
        (valid().with(NEXT_CA, "x"), Step::RemoveOldCas),
        (
            valid().next(&other).without(NEXT_CA_KEY),
            Step::RemoveOldCas,
        ),
        // A CA that is no longer needed.
        (
            SecretBuilder::usual(&old, now()).trusting(&[&other.certificate, &old.certificate]),
            Step::RemoveOldCas,
        ),
        (
            valid().trusting(&[&expired.certificate, &ca.certificate]),
            Step::RemoveOldCas,
        ),
    ];
    for (number, (secret, expected)) in cases.into_iter().enumerate() {
        assert_eq!(step(&secret), expected, "case {number}");
    }
}

/// CERT-5, CERT-4
#[test]
fn prepared_ca_takes_over_before_another_is_created() {
    let (ca, next) = (new_ca(ago(DAY)), new_ca(ago(MINUTE)));
    let broken = SecretBuilder::usual(&ca, ago(DAY))
        .next(&next)
        .with(LEAF, "x")
        .with(CA_KEY, "x");
    assert_eq!(step(&broken), Step::Switch);
    let unusable = broken.with(NEXT_CA_KEY, "x");
    assert_eq!(step(&unusable), Step::Create(SecretFault::Unreadable(LEAF)));
}

/// CERT-1
#[test]
fn leaf_is_renewed_after_two_thirds_of_its_lifetime() {
    let ca = new_ca(now());
    let secret = SecretBuilder::usual(&ca, now());
    for (age, expected) in [
        ((20 * DAY).saturating_sub(MINUTE), Step::Keep),
        (20 * DAY, Step::Renew(RenewalReason::Due)),
        (29 * DAY, Step::Renew(RenewalReason::Due)),
    ] {
        assert_eq!(
            decided(&secret, None, None, hence(age)),
            expected,
            "{age:?}"
        );
    }
}

/// CERT-4
#[test]
fn ca_is_replaced_after_two_thirds_of_its_lifetime() {
    let ca = new_ca(now());
    let due = 365 * DAY * 2 / 3;
    for (age, expected) in [
        (due.saturating_sub(MINUTE), Step::Keep),
        (due, Step::Prepare(RenewalReason::Due)),
    ] {
        let secret = SecretBuilder::usual(&ca, hence(age.saturating_sub(DAY)));
        assert_eq!(
            decided(&secret, None, None, hence(age)),
            expected,
            "{age:?}"
        );
    }
}

/// CERT-4
#[test]
fn each_step_of_a_rotation_is_decided_from_the_secret() {
    let (ca, next) = (new_ca(ago(300 * DAY)), new_ca(ago(MINUTE)));
    let valid = SecretBuilder::usual(&ca, ago(DAY));
    let prepared = valid.clone().next(&next);
    let both = [&ca.certificate, &next.certificate];
    let both_trusted = prepared.clone().trusting(&both);
    let switched = SecretBuilder::usual(&next, now()).trusting(&both);
    let leaf_due = both_trusted.clone().leaf_of(&ca, ago(25 * DAY));
    let last_needed = ago(30 * DAY);
    let due = || Step::Prepare(RenewalReason::Due);
    let cases = [
        ("due", &valid, None, None, due()),
        ("due and trusted", &valid, None, Some(99), due()),
        ("prepared", &prepared, None, None, Step::TrustNext),
        (
            "prepared, not in the bundle",
            &prepared,
            None,
            Some(99),
            Step::TrustNext,
        ),
        ("both in the bundle", &both_trusted, None, None, Step::Await),
        ("just trusted", &both_trusted, None, Some(0), Step::Await),
        (
            "nearly trusted for long enough",
            &both_trusted,
            None,
            Some(29),
            Step::Await,
        ),
        (
            "trusted for long enough",
            &both_trusted,
            None,
            Some(30),
            Step::Switch,
        ),
        (
            "never trusted",
            &leaf_due,
            None,
            None,
            Step::Renew(RenewalReason::Due),
        ),
        (
            "trusted, and the leaf is due",
            &leaf_due,
            None,
            Some(30),
            Step::Switch,
        ),
        ("switched", &switched, Some(now()), Some(99), Step::Keep),
        (
            "old leaves may be served",
            &switched,
            Some(last_needed + MINUTE),
            Some(99),
            Step::Keep,
        ),
        (
            "old leaves are no longer served",
            &switched,
            Some(last_needed),
            None,
            Step::RemoveOldCas,
        ),
        (
            "unknown time of the switch: since the new CA was issued",
            &switched,
            None,
            None,
            Step::Keep,
        ),
        (
            "time of the switch in the future",
            &switched,
            Some(hence(DAY)),
            None,
            Step::Keep,
        ),
    ];
    for (name, secret, since, trusted_for, expected) in cases {
        assert_eq!(
            decided(secret, since, trusted_for, now()),
            expected,
            "{name}"
        );
    }
    let later = decided(&switched, None, None, hence(29 * DAY));
    assert_eq!(
        later,
        Step::Renew(RenewalReason::Due),
        "the leaf is renewed first"
    );
    let renewed = switched.leaf_of(&next, hence(29 * DAY));
    let later = decided(&renewed, None, None, hence(30 * DAY));
    assert_eq!(later, Step::RemoveOldCas);
}

/// CERT-4
#[test]
fn stalled_rotation_does_not_renew_the_leaf_needlessly() {
    let (ca, next) = (new_ca(ago(350 * DAY)), new_ca(ago(MINUTE)));
    let both_trusted = SecretBuilder::usual(&ca, ago(DAY))
        .next(&next)
        .trusting(&[&ca.certificate, &next.certificate]);
    // The leaf already expires with its CA, so a new one would not last longer.
    for days in 0..14 {
        let step = decided(&both_trusted, None, None, hence(days * DAY));
        assert_eq!(step, Step::Await, "day {days}");
    }
    let step = decided(&both_trusted, None, None, hence(15 * DAY));
    assert_eq!(step, Step::Switch, "the leaf has expired");
}
