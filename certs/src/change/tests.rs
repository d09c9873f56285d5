#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use super::change;
use crate::bundle::Bundle;
use crate::certificate::Certificate;
use crate::data::{AUTHORITIES, AUTHORITY_KEY, Data, LEAF, LEAF_KEY, NEXT, NEXT_KEY};
use crate::decide::{Step, decide};
use crate::testing::{DAY, Held, ago, authority, hence, names, now, settings};
use crate::time::{after, between};

/// A Secret, what the API servers trust, and the current leader.
struct World {
    data: Data,
    since: Option<String>,
    /// Content of every `caBundle`; `read_back` is since when the current leader has observed it.
    applied: Vec<Certificate>,
    read_back: Option<Timestamp>,
    now: Timestamp,
}

impl World {
    fn new(held: Held) -> Self {
        let bundle = Bundle::read(&held.0, None);
        Self {
            data: held.0,
            since: None,
            applied: bundle.authorities,
            read_back: None,
            now: now(),
        }
    }

    fn bundle(&self) -> Bundle {
        Bundle::read(&self.data, self.since.as_deref())
    }

    /// One reconcile by the leader.
    fn look(&mut self) -> Step {
        let bundle = self.bundle();
        let trusted_for = self.read_back.map(|since| between(since, self.now));
        let step = decide(&bundle, trusted_for, &settings(), self.now);
        let changed = change(
            &step,
            &self.data,
            &bundle,
            &self.applied,
            &settings(),
            self.now,
        );
        if let Some(changed) = changed.unwrap() {
            self.data = changed.data;
            self.since = changed.since.map(|since| since.to_string());
            self.read_back = None;
        }
        step
    }

    /// Reconciles five times, as often as a rotation takes; `wanted` must be among the steps.
    fn look_until(&mut self, wanted: &Step) {
        let steps: Vec<Step> = (0..5).map(|_| self.look()).collect();
        assert!(steps.contains(wanted), "{steps:?}");
    }

    /// Applies the Secret's bundle to the configurations and reads it back.
    fn apply(&mut self) {
        self.applied = self.bundle().authorities;
        self.read_back.get_or_insert(self.now);
    }

    /// A new leader takes over, which has observed nothing yet.
    fn lose_the_leader(&mut self) {
        self.read_back = None;
    }

    fn pass(&mut self, time: Duration) {
        self.now = after(self.now, time);
    }

    /// Whether the API servers accept the served leaf.
    fn is_trusted(&self) -> bool {
        let leaf = self.bundle().leaf.unwrap();
        let issuer = leaf.judge(&names(), self.now);
        issuer.is_ok_and(|issuer| self.applied.contains(issuer))
    }
}

/// CERT-4, CERT-2
#[test]
fn rotation_survives_leader_changes_and_every_leaf_is_trusted() {
    let moment = Duration::from_secs(10);
    for dies_after in 0..=5 {
        let due = authority(ago(250 * DAY));
        let mut world = World::new(Held::usual(&due, ago(DAY)));
        world.read_back = Some(ago(DAY));
        let mut steps: Vec<Step> = Vec::new();
        let mut written = 0;
        while world.now < hence(34 * DAY) {
            let step = world.look();
            // The leaf is in the Secret before the configurations change.
            assert!(world.is_trusted(), "{step} at {}", world.now);
            if !matches!(step, Step::Keep | Step::Await) {
                written += 1;
                if written == dies_after {
                    world.lose_the_leader();
                }
            }
            world.apply();
            assert!(world.is_trusted(), "{step} at {}", world.now);
            if steps.last() != Some(&step) {
                steps.push(step.clone());
            }
            let idle = step == Step::Keep;
            world.pass(if idle { 2 * DAY } else { moment });
        }
        let steps: Vec<_> = steps.iter().map(|it| format!("{it:?}")).collect();
        assert_eq!(
            steps,
            [
                "Prepare(Due)",
                "Widen",
                "Await",
                "Switch",
                "Keep",
                "Renew(Due)",
                "Keep",
                "Retire",
                "Keep"
            ],
            "died after {dies_after}"
        );
        let bundle = world.bundle();
        let signer = bundle.signer.unwrap().certificate;
        assert_ne!(signer, due.certificate);
        assert_eq!(bundle.authorities, [signer]);
        assert!(bundle.next.is_none() && world.since.is_none());
    }
}

/// CERT-4
#[test]
fn the_leaf_of_the_next_authority_waits_for_all_api_servers() {
    let due = authority(ago(250 * DAY));
    let mut world = World::new(Held::usual(&due, ago(DAY)));
    world.look_until(&Step::Await);
    // The bundle is not applied for an hour.
    world.pass(Duration::from_hours(1));
    assert_eq!(world.look(), Step::Await);
    world.apply();
    world.pass(Duration::from_secs(29));
    assert_eq!(world.look(), Step::Await);
    world.lose_the_leader();
    world.apply();
    world.pass(Duration::from_secs(29));
    assert_eq!(
        world.look(),
        Step::Await,
        "the next leader waits from the start"
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(world.look(), Step::Switch);
    let bundle = world.bundle();
    let both: Vec<_> = bundle.authorities.iter().map(|it| it.fingerprint).collect();
    let signer = bundle.signer.unwrap().certificate.fingerprint;
    assert_eq!(
        both,
        [due.certificate.fingerprint, signer],
        "the same caBundle"
    );
}

/// CERT-4
#[test]
fn an_old_authority_stays_for_one_leaf_lifetime_however_long_the_rotation_took() {
    let due = authority(ago(250 * DAY));
    let mut world = World::new(Held::usual(&due, ago(DAY)));
    world.look_until(&Step::Await);
    for _ in 0..40 {
        world.pass(DAY);
        world.look_until(&Step::Await);
    }
    world.apply();
    world.pass(Duration::from_secs(30));
    world.look_until(&Step::Switch);
    for (days, authorities) in [(29, 2), (1, 1)] {
        world.pass(days * DAY);
        world.look_until(&Step::Keep);
        assert_eq!(
            world.bundle().authorities.len(),
            authorities,
            "{}",
            world.now
        );
    }
}

/// CERT-5
#[test]
fn unusable_next_ca_is_removed() {
    let ours = authority(ago(DAY));
    let mut world = World::new(
        Held::usual(&ours, ago(DAY))
            .with(NEXT, "x")
            .with(NEXT_KEY, "x"),
    );
    assert_eq!(world.look(), Step::Retire);
    assert_eq!(world.look(), Step::Keep);
    assert_eq!(
        (world.data.get(NEXT), world.data.get(NEXT_KEY)),
        (None, None)
    );
}

/// CERT-1, CERT-5
#[test]
fn missing_secret_is_created_in_full() {
    let mut world = World::new(Held::default());
    assert!(matches!(world.look(), Step::Mint(_)));
    let bundle = world.bundle();
    let leaf = bundle.leaf.unwrap();
    let signer = bundle.signer.unwrap().certificate;
    assert_eq!(leaf.judge(&names(), now()), Ok(&signer));
    assert_eq!(bundle.authorities, [signer]);
    for key in [LEAF, LEAF_KEY, AUTHORITIES, AUTHORITY_KEY] {
        assert!(world.data.get(key).is_some(), "{key}");
    }
    assert_eq!(world.look(), Step::Keep);
}

/// CERT-5
#[test]
fn a_lost_authority_stays_trusted_as_long_as_its_leaves_may_be_served() {
    let lost = authority(ago(DAY));
    let mut world = World::new(Held::usual(&lost, ago(DAY)));
    world.data = Data::default();
    world.look();
    let authorities = world.bundle().authorities;
    assert_eq!(authorities.len(), 2);
    assert_eq!(
        authorities[0], lost.certificate,
        "as the configurations have it"
    );
    world.apply();
    world.pass(29 * DAY);
    world.look_until(&Step::Keep);
    assert!(world.bundle().authorities.contains(&lost.certificate));
    world.pass(DAY);
    world.look_until(&Step::Keep);
    assert!(!world.bundle().authorities.contains(&lost.certificate));
}

/// CERT-5
#[test]
fn bundle_stays_small_however_often_the_secret_breaks() {
    let mut world = World::new(Held::default());
    for _ in 0..10 {
        world.look();
        world.apply();
        world.pass(Duration::from_mins(1));
        world.data = Data::default();
    }
    world.look();
    let bundle = world.bundle();
    assert_eq!(bundle.authorities.len(), 4);
    let newest = bundle.authorities.last().map(|it| it.fingerprint);
    assert_eq!(newest, Some(bundle.signer.unwrap().certificate.fingerprint));
}

/// CERT-5
#[test]
fn only_the_leaf_is_replaced_where_that_is_enough() {
    let ours = authority(ago(DAY));
    let mut world = World::new(Held::usual(&ours, ago(DAY)).with(LEAF_KEY, "x"));
    let before = world.data.clone();
    assert!(matches!(world.look(), Step::Renew(_)));
    assert!(world.is_trusted());
    for key in [AUTHORITIES, AUTHORITY_KEY, NEXT, NEXT_KEY] {
        assert_eq!(world.data.get(key), before.get(key), "{key}");
    }
    assert_eq!(world.look(), Step::Keep);
}

/// CERT-5
#[test]
fn clock_set_back_does_not_shrink_the_bundle() {
    let ours = authority(now());
    let mut world = World::new(Held::usual(&ours, now()));
    world.now = ago(DAY);
    assert!(matches!(world.look(), Step::Mint(_)));
    let bundle = world.bundle();
    assert!(bundle.authorities.contains(&ours.certificate));
    assert_eq!(world.look(), Step::Keep);
    world.now = now();
    assert_eq!(world.look(), Step::Keep, "and set right again");
}

/// Keys set by others are left alone.
#[test]
fn other_keys_of_the_secret_stay() {
    let mut world = World::new(Held::default().with("note", "ours"));
    world.look();
    assert_eq!(world.data.get("note"), Some(&b"ours"[..]));
}
