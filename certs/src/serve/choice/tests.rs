#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use super::{Choice, NotReady, Trusted};
use crate::bundle::{Fault, Leaf};
use crate::data::{AUTHORITIES, LEAF};
use crate::mint::Authority;
use crate::testing::{DAY, Held, ago, authority, hence, names, now};

const HOUR: Duration = Duration::from_hours(1);

fn leaf_of(authority: &Authority, made: Timestamp) -> Leaf {
    Held::usual(authority, made).read()
}

fn trusting(authorities: &[&Authority]) -> Trusted {
    let fingerprint = |it: &&Authority| it.certificate.fingerprint;
    Trusted::These(authorities.iter().map(fingerprint).collect())
}

/// A choice that serves a leaf from this CA, which is trusted.
fn serving(authority: &Authority, made: Timestamp) -> Choice {
    let mut choice = Choice::default();
    choice.offer(Ok(leaf_of(authority, made)));
    choice.trust(trusting(&[authority]));
    assert!(choice.settle(&names(), now()).is_some());
    choice
}

/// Offers a leaf; returns whether it is served from then on.
fn offered(choice: &mut Choice, leaf: &Leaf, now: Timestamp) -> bool {
    choice.offer(Ok(leaf.clone()));
    let swapped = choice.settle(&names(), now);
    assert!(swapped.as_ref().is_none_or(|swapped| swapped == leaf));
    swapped.is_some()
}

/// CERT-3
#[test]
fn three_rotations_of_the_leaf_take_effect_at_once() {
    let ours = authority(ago(DAY));
    let mut choice = serving(&ours, ago(DAY));
    for hours in 1..=3 {
        let next = leaf_of(&ours, hence(hours * HOUR));
        assert!(offered(&mut choice, &next, hence(hours * HOUR)));
        assert!(!offered(&mut choice, &next, hence(hours * HOUR)));
        assert_eq!(choice.ready(&names(), hence(hours * HOUR)), Ok(()));
    }
    assert_eq!(choice.shown().swapped, 4);
}

/// CERT-7
#[test]
fn trusted_cas_are_parsed_from_fingerprints() {
    let ours = authority(now());
    let text = ours.certificate.fingerprint.to_string();
    assert_eq!(Trusted::read(["rubbish", &text]), trusting(&[&ours]));
    assert_eq!(Trusted::read(["rubbish"]), Trusted::Unknown);
    assert_eq!(Trusted::read([]), Trusted::Unknown);
}

/// CERT-7, CERT-4
#[test]
fn a_leaf_of_another_authority_waits_until_that_is_trusted() {
    let (old, new) = (authority(ago(DAY)), authority(now()));
    let mut choice = serving(&old, ago(DAY));
    let next = leaf_of(&new, now());
    assert!(!offered(&mut choice, &next, now()));
    assert_eq!(choice.ready(&names(), now()), Ok(()));
    assert_eq!(choice.problem(), None, "it only waits");
    for (trusted, takes) in [
        (trusting(&[&old]), false),
        (Trusted::Unknown, false),
        (trusting(&[&old, &new]), true),
    ] {
        choice.trust(trusted);
        assert_eq!(choice.settle(&names(), now()).is_some(), takes);
    }
    choice.trust(trusting(&[&new]));
    assert_eq!(choice.ready(&names(), now()), Ok(()));
}

/// ADM-25
#[test]
fn replica_stays_ready_when_one_configuration_loses_its_ca() {
    let (old, new) = (authority(ago(DAY)), authority(now()));
    let begins = || {
        let mut choice = Choice::default();
        offered(&mut choice, &leaf_of(&new, now()), now());
        choice
    };
    let is_ready = |choice: &mut Choice, trusted: Trusted| {
        choice.trust(trusted);
        choice.settle(&names(), now());
        choice.ready(&names(), now())
    };
    let mut replica = begins();
    assert_eq!(is_ready(&mut replica, trusting(&[&old, &new])), Ok(()));
    // No CA, or a different one, is common to all configurations.
    assert_eq!(is_ready(&mut replica, Trusted::Unknown), Ok(()));
    assert_eq!(is_ready(&mut replica, trusting(&[&old])), Ok(()));
    let (unknown, untrusted) = (NotReady::TrustUnknown, NotReady::Untrusted);
    assert_eq!(is_ready(&mut begins(), Trusted::Unknown), Err(unknown));
    assert_eq!(is_ready(&mut begins(), trusting(&[&old])), Err(untrusted));
}

/// CERT-7
#[test]
fn expiring_leaf_yields_to_one_that_may_not_be_trusted() {
    let (old, new) = (authority(ago(DAY)), authority(now()));
    let end = leaf_of(&old, ago(DAY)).certificate.not_after;
    for (left, takes) in [
        (HOUR, false),
        (HOUR.saturating_sub(Duration::from_secs(1)), true),
    ] {
        let mut choice = serving(&old, ago(DAY));
        let late = end - left;
        let next = leaf_of(&new, late);
        assert_eq!(offered(&mut choice, &next, late), takes, "{left:?}");
    }
    let mut choice = serving(&old, ago(DAY));
    assert!(!offered(&mut choice, &leaf_of(&new, now()), now()));
    assert!(choice.settle(&names(), end).is_some(), "time alone does it");
}

/// CERT-5
#[test]
fn the_last_good_leaf_outlives_a_bad_secret() {
    let (ours, other) = (authority(ago(DAY)), authority(now()));
    let usual = Held::usual(&ours, now());
    let untrusted = usual.clone().trusting(&[&other.certificate]);
    let bad = [
        Leaf::read(&Held::default().0),
        Leaf::read(&usual.clone().with(LEAF, "x").0),
        Leaf::read(&usual.without(AUTHORITIES).0),
        Leaf::read(&untrusted.0),
        Ok(leaf_of(&ours, ago(40 * DAY))),
        Ok(leaf_of(&ours, hence(DAY))),
    ];
    let mut choice = serving(&ours, ago(DAY));
    // The same fault again does not count as another refusal.
    let refused = [1, 2, 3, 3, 4, 5];
    for (number, (bad, refused)) in bad.into_iter().zip(refused).enumerate() {
        choice.offer(bad);
        assert_eq!(choice.settle(&names(), now()), None, "case {number}");
        assert!(choice.problem().is_some(), "case {number}");
        assert_eq!(choice.ready(&names(), now()), Ok(()), "case {number}");
        choice.settle(&names(), now());
        assert_eq!(choice.shown().refused, refused, "case {number}");
    }
    assert!(
        choice.settle(&names(), hence(DAY)).is_some(),
        "its time has come"
    );
    assert_eq!(choice.problem(), None);
}

/// CERT-5, AVL-2
#[test]
fn readiness_reports_why_clients_reject_the_leaf() {
    let ours = authority(ago(DAY));
    let mut choice = Choice::default();
    let unread = |choice: &Choice| choice.ready(&names(), now()).unwrap_err().to_string();
    assert!(unread(&choice).ends_with("has not been read yet"));
    choice.unread("forbidden");
    assert!(unread(&choice).ends_with("read yet: forbidden"));

    choice.offer(Leaf::read(&Held::default().0));
    choice.settle(&names(), now());
    let nothing = NotReady::Nothing(Fault::Missing(LEAF));
    assert_eq!(choice.ready(&names(), now()), Err(nothing));

    choice.offer(Ok(leaf_of(&ours, ago(DAY))));
    assert!(choice.settle(&names(), now()).is_some());
    assert_eq!(choice.ready(&names(), now()), Err(NotReady::TrustUnknown));
    choice.trust(Trusted::All);
    assert_eq!(choice.ready(&names(), now()), Ok(()));
    let expired = NotReady::Bad(Fault::Expired(LEAF));
    assert_eq!(choice.ready(&names(), hence(30 * DAY)), Err(expired));
    let shown = choice.shown();
    let ends = (shown.leaf_ends, shown.authority_ends);
    assert_eq!(ends, (Some(hence(29 * DAY)), Some(hence(364 * DAY))));
}

/// CERT-5
#[test]
fn invalid_leaf_is_served_while_there_was_no_other() {
    let ours = authority(ago(DAY));
    let mut choice = Choice::default();
    choice.trust(Trusted::All);
    // The local clock may be the wrong one.
    assert!(offered(&mut choice, &leaf_of(&ours, hence(DAY)), now()));
    let early = NotReady::Bad(Fault::NotYetValid(LEAF));
    assert_eq!(choice.ready(&names(), now()), Err(early));
    assert!(offered(&mut choice, &leaf_of(&ours, now()), now()));
}
