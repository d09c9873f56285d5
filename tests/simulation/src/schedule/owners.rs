//! The actions of a schedule on targets with owners, concurrent with all other actions.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::installation::BROKERS;
use crate::randomness::{delay, pick};
use crate::schedule::action::{Action, Actor};
use crate::schedule::bindings::{runtime, scaling};
use crate::world::NAMESPACES;
use crate::world::owners::OwnerKind;
use crate::world::targets::{TargetKind, target_name};

/// The actors of a run whose targets have owners.
pub struct Owned(Vec<(Actor, OwnerKind)>);

/// Actors whose names no other actor has.
fn all() -> [(Actor, OwnerKind); 5] {
    let [first, second] = NAMESPACES;
    [
        ((first, "k"), OwnerKind::Kserve),
        ((second, "w"), OwnerKind::Kaito),
        ((second, "r"), OwnerKind::Ray),
        ((first, "g"), OwnerKind::Argo),
        ((second, "h"), OwnerKind::Replace),
    ]
}

impl Owned {
    /// Draws the actors; two thirds of all runs have none.
    pub fn new(random: &mut Rng) -> Self {
        let mut all = all().to_vec();
        let count = [0, 0, 0, 0, 1, 2][random.usize(..6)];
        while all.len() > count {
            all.remove(random.usize(..all.len()));
        }
        Self(all)
    }

    /// The owners that run, each with its namespace.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<(OwnerKind, &'static str)> {
        let owners = self.0.iter();
        owners.map(|(actor, owner)| (*owner, actor.0)).collect()
    }

    /// The actors with the kinds of their targets.
    #[must_use]
    pub fn targets(&self) -> Vec<(Actor, TargetKind)> {
        let owned = |(actor, owner): &(Actor, OwnerKind)| (*actor, TargetKind::Owned(*owner));
        self.0.iter().map(owned).collect()
    }

    /// Draws the actions, with their times.
    pub fn actions(&self, random: &mut Rng) -> Vec<(Duration, Action)> {
        let mut actions = Vec::new();
        let mut at = Duration::from_secs(1);
        for (actor, owner) in &self.0 {
            let mut both = [
                Action::CreateTarget(*actor, TargetKind::Owned(*owner), random.u8(..4)),
                Action::Create(*actor, spec(random, actor, *owner)),
            ];
            if random.bool() {
                both.reverse();
            }
            for action in both {
                actions.push((at, action));
                at += delay(random, 0..6_000);
            }
        }
        for _ in 0..if self.0.is_empty() {
            0
        } else {
            random.usize(4..14)
        } {
            at += delay(random, 10..15_000);
            actions.push((at, self.action(random)));
        }
        actions
    }

    /// In a quarter of the runs with owners, the operator temporarily lacks permission on one owner's targets.
    pub fn rights(&self, random: &mut Rng) -> Vec<(Duration, Action)> {
        let mut owners = self.0.iter().map(|(_, owner)| *owner);
        let Some(owner) = owners.find(|owner| !owner.is_gitops()) else {
            return Vec::new();
        };
        if random.u8(..4) > 0 {
            return Vec::new();
        }
        let at = delay(random, 2_000..60_000);
        let until = at + delay(random, 5_000..150_000);
        vec![(at, Action::Forbid(owner)), (until, Action::Allow(owner))]
    }

    fn action(&self, random: &mut Rng) -> Action {
        let (actor, owner) = *pick(random, &self.0);
        let kind = TargetKind::Owned(owner);
        match random.u8(..21) {
            0..=1 => Action::CreateTarget(actor, kind, random.u8(..4)),
            2..=5 => Action::ChangeTarget(actor, kind, random.u8(1..8)),
            6..=7 => Action::ScaleTarget(actor, kind, random.u8(..4)),
            8 => Action::DeleteTarget(actor, kind),
            9 => Action::Create(actor, spec(random, &actor, owner)),
            10..=13 => Action::Update(actor, change(random, owner)),
            14..=15 => Action::Delete(actor),
            16 => Action::Publish(actor, random.u64(1..5)),
            17 => Action::DeleteWorkload(actor, owner),
            18..=19 => Action::CrashOwner(owner, random.u64(..12)),
            _ => Action::CutOwner(owner, delay(random, 500..40_000)),
        }
    }
}

fn spec(random: &mut Rng, actor: &Actor, owner: OwnerKind) -> Value {
    let target = owner.target();
    let target = json!({
        "apiVersion": target.api_version(), "kind": target.kind, "name": target_name(actor.1),
    });
    let mut spec = json!({
        "transport": pick(random, &BROKERS),
        "workloadRef": target,
        "runtime": runtime(random),
        "binding": binding(random, owner),
        "queue": {"deletionPolicy": pick(random, &["Delete", "Delete", "Retain", "DeleteIfEmpty", "Drain"])},
    });
    // The owner's kind determines where the model listens.
    if !owner.is_gitops() && random.bool() {
        spec["runtime"]["targetURL"] = Value::Null;
    }
    if is_scalable(owner) && random.bool() {
        spec["scaling"] = scaling(random);
    }
    spec
}

/// The queue cannot scale a target without `/scale`, or one whose manifest sets the number of pods.
fn is_scalable(owner: OwnerKind) -> bool {
    !matches!(owner, OwnerKind::Ray | OwnerKind::Replace)
}

/// Only a target without an owner in the cluster allows changes to its pod template (BIND-17, BIND-18).
fn binding(random: &mut Rng, owner: OwnerKind) -> Value {
    if owner.is_gitops() && random.u8(..3) > 0 {
        return json!({"strategy": "Template", "rollout": null, "required": null});
    }
    json!({
        "strategy": null,
        "rollout": pick(random, &["Always", "Always", "OnRestart"]), "required": random.u8(..4) == 0,
    })
}

fn change(random: &mut Rng, owner: OwnerKind) -> Value {
    match random.u8(..7) {
        0..=1 => json!({"runtime": runtime(random)}),
        2 => json!({"scaling": null}),
        3..=4 if is_scalable(owner) => json!({"scaling": scaling(random)}),
        5 => json!({"binding": binding(random, owner)}),
        _ => json!({"transport": pick(random, &BROKERS)}),
    }
}
