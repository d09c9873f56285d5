#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use super::{LeafSelector, NotReady, Trusted};
use crate::data::{CA_BUNDLE, LEAF};
use crate::issuer::Ca;
use crate::parsed_secret::{Leaf, SecretFault};
use crate::testing::{DAY, SecretBuilder, ago, hence, names, new_ca, now};

const HOUR: Duration = Duration::from_hours(1);

fn leaf_of(ca: &Ca, issued_at: Timestamp) -> Leaf {
    SecretBuilder::usual(ca, issued_at).read()
}

fn trusting(cas: &[&Ca]) -> Trusted {
    let fingerprint = |ca: &&Ca| ca.certificate.fingerprint;
    Trusted::These(cas.iter().map(fingerprint).collect())
}

/// A selector that serves a leaf of this CA, which is trusted.
fn serving(ca: &Ca, issued_at: Timestamp) -> LeafSelector {
    let mut selector = LeafSelector::default();
    selector.set_candidate(Ok(leaf_of(ca, issued_at)));
    selector.trust(trusting(&[ca]));
    assert!(selector.reevaluate(&names(), now()).is_some());
    selector
}

/// Offers a leaf; returns whether it is now served.
fn offer(selector: &mut LeafSelector, leaf: &Leaf, now: Timestamp) -> bool {
    selector.set_candidate(Ok(leaf.clone()));
    let swapped = selector.reevaluate(&names(), now);
    assert!(swapped.as_ref().is_none_or(|swapped| swapped == leaf));
    swapped.is_some()
}

/// CERT-3
#[test]
fn three_rotations_of_the_leaf_take_effect_immediately() {
    let ca = new_ca(ago(DAY));
    let mut selector = serving(&ca, ago(DAY));
    for hours in 1..=3 {
        let next = leaf_of(&ca, hence(hours * HOUR));
        assert!(offer(&mut selector, &next, hence(hours * HOUR)));
        assert!(!offer(&mut selector, &next, hence(hours * HOUR)));
        assert_eq!(selector.ready(&names(), hence(hours * HOUR)), Ok(()));
    }
    assert_eq!(selector.metrics().swapped, 4);
}

/// CERT-7
#[test]
fn trusted_cas_are_parsed_from_fingerprints() {
    let ca = new_ca(now());
    let text = ca.certificate.fingerprint.to_string();
    assert_eq!(Trusted::read(["rubbish", &text]), trusting(&[&ca]));
    assert_eq!(Trusted::read(["rubbish"]), Trusted::Unknown);
    assert_eq!(Trusted::read([]), Trusted::Unknown);
}

/// CERT-7, CERT-4
#[test]
fn leaf_of_another_ca_is_served_only_once_that_is_trusted() {
    let (old, new) = (new_ca(ago(DAY)), new_ca(now()));
    let mut selector = serving(&old, ago(DAY));
    let next = leaf_of(&new, now());
    assert!(!offer(&mut selector, &next, now()));
    assert_eq!(selector.ready(&names(), now()), Ok(()));
    assert_eq!(selector.problem(), None, "waiting is no fault");
    for (trusted, is_served) in [
        (trusting(&[&old]), false),
        (Trusted::Unknown, false),
        (trusting(&[&old, &new]), true),
    ] {
        selector.trust(trusted);
        assert_eq!(selector.reevaluate(&names(), now()).is_some(), is_served);
    }
    selector.trust(trusting(&[&new]));
    assert_eq!(selector.ready(&names(), now()), Ok(()));
}

/// ADM-25
#[test]
fn replica_stays_ready_when_one_configuration_loses_its_ca() {
    let (old, new) = (new_ca(ago(DAY)), new_ca(now()));
    let starting = || {
        let mut selector = LeafSelector::default();
        offer(&mut selector, &leaf_of(&new, now()), now());
        selector
    };
    let is_ready = |selector: &mut LeafSelector, trusted: Trusted| {
        selector.trust(trusted);
        selector.reevaluate(&names(), now());
        selector.ready(&names(), now())
    };
    let mut replica = starting();
    assert_eq!(is_ready(&mut replica, trusting(&[&old, &new])), Ok(()));
    // No CA, or a different one, is common to all configurations.
    assert_eq!(is_ready(&mut replica, Trusted::Unknown), Ok(()));
    assert_eq!(is_ready(&mut replica, trusting(&[&old])), Ok(()));
    let (unknown, untrusted) = (NotReady::TrustUnknown, NotReady::Untrusted);
    assert_eq!(is_ready(&mut starting(), Trusted::Unknown), Err(unknown));
    assert_eq!(is_ready(&mut starting(), trusting(&[&old])), Err(untrusted));
}

/// CERT-7
#[test]
fn expiring_leaf_is_replaced_by_one_that_may_not_be_trusted() {
    let (old, new) = (new_ca(ago(DAY)), new_ca(now()));
    let expiry = leaf_of(&old, ago(DAY)).certificate.not_after;
    for (remaining, is_served) in [
        (HOUR, false),
        (HOUR.saturating_sub(Duration::from_secs(1)), true),
    ] {
        let mut selector = serving(&old, ago(DAY));
        let late = expiry - remaining;
        let next = leaf_of(&new, late);
        assert_eq!(
            offer(&mut selector, &next, late),
            is_served,
            "{remaining:?}"
        );
    }
    let mut selector = serving(&old, ago(DAY));
    assert!(!offer(&mut selector, &leaf_of(&new, now()), now()));
    assert!(
        selector.reevaluate(&names(), expiry).is_some(),
        "no event is needed"
    );
}

/// CERT-5
#[test]
fn last_valid_leaf_is_served_while_the_secret_is_invalid() {
    let (ca, other) = (new_ca(ago(DAY)), new_ca(now()));
    let valid = SecretBuilder::usual(&ca, now());
    let untrusted = valid.clone().trusting(&[&other.certificate]);
    let invalid = [
        Leaf::read(&SecretBuilder::default().0),
        Leaf::read(&valid.clone().with(LEAF, "x").0),
        Leaf::read(&valid.without(CA_BUNDLE).0),
        Leaf::read(&untrusted.0),
        Ok(leaf_of(&ca, ago(40 * DAY))),
        Ok(leaf_of(&ca, hence(DAY))),
    ];
    let mut selector = serving(&ca, ago(DAY));
    // A repeated fault does not count as another refusal.
    let refused = [1, 2, 3, 3, 4, 5];
    for (number, (invalid, refused)) in invalid.into_iter().zip(refused).enumerate() {
        selector.set_candidate(invalid);
        assert_eq!(selector.reevaluate(&names(), now()), None, "case {number}");
        assert!(selector.problem().is_some(), "case {number}");
        assert_eq!(selector.ready(&names(), now()), Ok(()), "case {number}");
        selector.reevaluate(&names(), now());
        assert_eq!(selector.metrics().refused, refused, "case {number}");
    }
    assert!(
        selector.reevaluate(&names(), hence(DAY)).is_some(),
        "the leaf has become valid"
    );
    assert_eq!(selector.problem(), None);
}

/// CERT-5, AVL-2 (c)
#[test]
fn readiness_reports_why_clients_reject_the_leaf() {
    let ca = new_ca(ago(DAY));
    let mut selector = LeafSelector::default();
    let unread = |selector: &LeafSelector| selector.ready(&names(), now()).unwrap_err().to_string();
    assert!(unread(&selector).ends_with("has not been read yet"));
    selector.record_read_error("forbidden");
    assert!(unread(&selector).ends_with("read yet: forbidden"));

    selector.set_candidate(Leaf::read(&SecretBuilder::default().0));
    selector.reevaluate(&names(), now());
    let no_certificate = NotReady::NoCertificate(SecretFault::Missing(LEAF));
    assert_eq!(selector.ready(&names(), now()), Err(no_certificate));

    selector.set_candidate(Ok(leaf_of(&ca, ago(DAY))));
    assert!(selector.reevaluate(&names(), now()).is_some());
    assert_eq!(selector.ready(&names(), now()), Err(NotReady::TrustUnknown));
    selector.trust(Trusted::All);
    assert_eq!(selector.ready(&names(), now()), Ok(()));
    let expired = NotReady::Invalid(SecretFault::Expired(LEAF));
    assert_eq!(selector.ready(&names(), hence(30 * DAY)), Err(expired));
    let metrics = selector.metrics();
    let ends = (metrics.leaf_expires, metrics.ca_expires);
    assert_eq!(ends, (Some(hence(29 * DAY)), Some(hence(364 * DAY))));
}

/// CERT-5
#[test]
fn invalid_leaf_is_served_if_there_is_no_earlier_one() {
    let ca = new_ca(ago(DAY));
    let mut selector = LeafSelector::default();
    selector.trust(Trusted::All);
    // The local clock may be wrong.
    assert!(offer(&mut selector, &leaf_of(&ca, hence(DAY)), now()));
    let not_yet_valid = NotReady::Invalid(SecretFault::NotYetValid(LEAF));
    assert_eq!(selector.ready(&names(), now()), Err(not_yet_valid));
    assert!(offer(&mut selector, &leaf_of(&ca, now()), now()));
}
