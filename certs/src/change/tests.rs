#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use super::apply_step;
use crate::certificate::Certificate;
use crate::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::decide::{Step, decide};
use crate::parsed_secret::ParsedSecret;
use crate::testing::{DAY, SecretBuilder, ago, hence, names, new_ca, now, settings};
use crate::time::{after, between};

/// A Secret, the CAs that API servers trust, and the current leader.
struct World {
    data: Data,
    since: Option<String>,
    /// Content of every `caBundle`; `read_back` is when the current leader first observed it.
    applied: Vec<Certificate>,
    read_back: Option<Timestamp>,
    now: Timestamp,
}

impl World {
    fn new(secret: SecretBuilder) -> Self {
        let parsed = ParsedSecret::read(&secret.0, None);
        Self {
            data: secret.0,
            since: None,
            applied: parsed.cas,
            read_back: None,
            now: now(),
        }
    }

    fn parsed(&self) -> ParsedSecret {
        ParsedSecret::read(&self.data, self.since.as_deref())
    }

    /// One reconcile by the leader.
    fn step(&mut self) -> Step {
        let parsed = self.parsed();
        let trusted_for = self.read_back.map(|since| between(since, self.now));
        let step = decide(&parsed, trusted_for, &settings(), self.now);
        let changed = apply_step(
            &step,
            &self.data,
            &parsed,
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

    /// Reconciles five times, enough for a rotation; `expected` must be among the steps.
    fn step_until(&mut self, expected: &Step) {
        let steps: Vec<Step> = (0..5).map(|_| self.step()).collect();
        assert!(steps.contains(expected), "{steps:?}");
    }

    /// Applies the Secret's bundle to the configurations and reads it back.
    fn apply(&mut self) {
        self.applied = self.parsed().cas;
        self.read_back.get_or_insert(self.now);
    }

    /// A new leader takes over, and has not observed any `caBundle` yet.
    fn change_leader(&mut self) {
        self.read_back = None;
    }

    fn advance(&mut self, time: Duration) {
        self.now = after(self.now, time);
    }

    /// Whether the API servers accept the served leaf.
    fn is_trusted(&self) -> bool {
        let leaf = self.parsed().leaf.unwrap();
        let issuer = leaf.verify(&names(), self.now);
        issuer.is_ok_and(|issuer| self.applied.contains(issuer))
    }
}

/// CERT-4, CERT-2
#[test]
fn rotation_survives_leader_changes_and_every_leaf_is_trusted() {
    let short = Duration::from_secs(10);
    for leader_change_after in 0..=5 {
        let due = new_ca(ago(250 * DAY));
        let mut world = World::new(SecretBuilder::usual(&due, ago(DAY)));
        world.read_back = Some(ago(DAY));
        let mut steps: Vec<Step> = Vec::new();
        let mut writes = 0;
        while world.now < hence(34 * DAY) {
            let step = world.step();
            // The Secret changes before the configurations do.
            assert!(world.is_trusted(), "{step} at {}", world.now);
            if !matches!(step, Step::Keep | Step::Await) {
                writes += 1;
                if writes == leader_change_after {
                    world.change_leader();
                }
            }
            world.apply();
            assert!(world.is_trusted(), "{step} at {}", world.now);
            if steps.last() != Some(&step) {
                steps.push(step.clone());
            }
            let is_idle = step == Step::Keep;
            world.advance(if is_idle { 2 * DAY } else { short });
        }
        let steps: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
        assert_eq!(
            steps,
            [
                "Prepare(Due)",
                "TrustNext",
                "Await",
                "Switch",
                "Keep",
                "Renew(Due)",
                "Keep",
                "RemoveOldCas",
                "Keep"
            ],
            "leader change after {leader_change_after}"
        );
        let parsed = world.parsed();
        let current_ca = parsed.current_ca.unwrap().certificate;
        assert_ne!(current_ca, due.certificate);
        assert_eq!(parsed.cas, [current_ca]);
        assert!(parsed.next.is_none() && world.since.is_none());
    }
}

/// CERT-4
#[test]
fn next_ca_signs_only_after_the_propagation_delay() {
    let due = new_ca(ago(250 * DAY));
    let mut world = World::new(SecretBuilder::usual(&due, ago(DAY)));
    world.step_until(&Step::Await);
    // The bundle is not applied for an hour.
    world.advance(Duration::from_hours(1));
    assert_eq!(world.step(), Step::Await);
    world.apply();
    world.advance(Duration::from_secs(29));
    assert_eq!(world.step(), Step::Await);
    world.change_leader();
    world.apply();
    world.advance(Duration::from_secs(29));
    assert_eq!(world.step(), Step::Await, "a new leader restarts the delay");
    world.advance(Duration::from_secs(1));
    assert_eq!(world.step(), Step::Switch);
    let parsed = world.parsed();
    let both: Vec<_> = parsed.cas.iter().map(|it| it.fingerprint).collect();
    let current_ca = parsed.current_ca.unwrap().certificate.fingerprint;
    assert_eq!(
        both,
        [due.certificate.fingerprint, current_ca],
        "the caBundle is unchanged"
    );
}

/// CERT-4
#[test]
fn old_ca_stays_trusted_for_one_leaf_lifetime_after_a_slow_rotation() {
    let due = new_ca(ago(250 * DAY));
    let mut world = World::new(SecretBuilder::usual(&due, ago(DAY)));
    world.step_until(&Step::Await);
    for _ in 0..40 {
        world.advance(DAY);
        world.step_until(&Step::Await);
    }
    world.apply();
    world.advance(Duration::from_secs(30));
    world.step_until(&Step::Switch);
    for (days, cas) in [(29, 2), (1, 1)] {
        world.advance(days * DAY);
        world.step_until(&Step::Keep);
        assert_eq!(world.parsed().cas.len(), cas, "{}", world.now);
    }
}

/// CERT-5
#[test]
fn unusable_next_ca_is_removed() {
    let ca = new_ca(ago(DAY));
    let mut world = World::new(
        SecretBuilder::usual(&ca, ago(DAY))
            .with(NEXT_CA, "x")
            .with(NEXT_CA_KEY, "x"),
    );
    assert_eq!(world.step(), Step::RemoveOldCas);
    assert_eq!(world.step(), Step::Keep);
    assert_eq!(
        (world.data.get(NEXT_CA), world.data.get(NEXT_CA_KEY)),
        (None, None)
    );
}

/// CERT-1, CERT-5
#[test]
fn missing_secret_is_created_in_full() {
    let mut world = World::new(SecretBuilder::default());
    assert!(matches!(world.step(), Step::Create(_)));
    let parsed = world.parsed();
    let leaf = parsed.leaf.unwrap();
    let current_ca = parsed.current_ca.unwrap().certificate;
    assert_eq!(leaf.verify(&names(), now()), Ok(&current_ca));
    assert_eq!(parsed.cas, [current_ca]);
    for key in [LEAF, LEAF_KEY, CA_BUNDLE, CA_KEY] {
        assert!(world.data.get(key).is_some(), "{key}");
    }
    assert_eq!(world.step(), Step::Keep);
}

/// CERT-5
#[test]
fn lost_ca_stays_trusted_while_its_leaves_may_be_served() {
    let lost = new_ca(ago(DAY));
    let mut world = World::new(SecretBuilder::usual(&lost, ago(DAY)));
    world.data = Data::default();
    world.step();
    let cas = world.parsed().cas;
    assert_eq!(cas.len(), 2);
    assert_eq!(cas[0], lost.certificate, "the configurations trust it");
    world.apply();
    world.advance(29 * DAY);
    world.step_until(&Step::Keep);
    assert!(world.parsed().cas.contains(&lost.certificate));
    world.advance(DAY);
    world.step_until(&Step::Keep);
    assert!(!world.parsed().cas.contains(&lost.certificate));
}

/// CERT-5
#[test]
fn bundle_size_is_bounded_when_the_secret_breaks_repeatedly() {
    let mut world = World::new(SecretBuilder::default());
    for _ in 0..10 {
        world.step();
        world.apply();
        world.advance(Duration::from_mins(1));
        world.data = Data::default();
    }
    world.step();
    let parsed = world.parsed();
    assert_eq!(parsed.cas.len(), 4);
    let newest = parsed.cas.last().map(|it| it.fingerprint);
    assert_eq!(
        newest,
        Some(parsed.current_ca.unwrap().certificate.fingerprint)
    );
}

/// CERT-5
#[test]
fn unusable_leaf_is_replaced_without_a_new_ca() {
    let ca = new_ca(ago(DAY));
    let mut world = World::new(SecretBuilder::usual(&ca, ago(DAY)).with(LEAF_KEY, "x"));
    let previous = world.data.clone();
    assert!(matches!(world.step(), Step::Renew(_)));
    assert!(world.is_trusted());
    for key in [CA_BUNDLE, CA_KEY, NEXT_CA, NEXT_CA_KEY] {
        assert_eq!(world.data.get(key), previous.get(key), "{key}");
    }
    assert_eq!(world.step(), Step::Keep);
}

/// CERT-5
#[test]
fn clock_set_back_does_not_shrink_the_bundle() {
    let ca = new_ca(now());
    let mut world = World::new(SecretBuilder::usual(&ca, now()));
    world.now = ago(DAY);
    assert!(matches!(world.step(), Step::Create(_)));
    let parsed = world.parsed();
    assert!(parsed.cas.contains(&ca.certificate));
    assert_eq!(world.step(), Step::Keep);
    world.now = now();
    assert_eq!(world.step(), Step::Keep, "the clock was corrected");
}

#[test]
fn other_keys_of_the_secret_are_kept() {
    let mut world = World::new(SecretBuilder::default().with("note", "kept"));
    world.step();
    assert_eq!(world.data.get("note"), Some(&b"kept"[..]));
}
