//! The actions of a schedule on bindings and their targets.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::installation::BROKERS;
use crate::randomness::{delay, pick};
use crate::schedule::action::{Action, Actor};
use crate::world::NAMESPACES;
use crate::world::targets::{TargetKind, target_name};

/// The bindings of a run, each with its target's kind.
pub struct Bindings(Vec<(Actor, TargetKind)>);

/// Actors with a `workloadRef`; no standalone actor has these names.
fn actors() -> [Actor; 3] {
    let [first, second] = NAMESPACES;
    [(first, "x"), (first, "y"), (second, "z")]
}

const KINDS: [TargetKind; 4] = [
    TargetKind::Deployment,
    TargetKind::Recreate,
    TargetKind::StatefulSet,
    TargetKind::OnDelete,
];

impl Bindings {
    /// Draws the bindings; half of all runs have none.
    pub fn new(random: &mut Rng) -> Self {
        let count = if random.bool() {
            random.usize(1..=3)
        } else {
            0
        };
        let bound = actors().into_iter().take(count);
        Self(bound.map(|actor| (actor, *pick(random, &KINDS))).collect())
    }

    /// The actors.
    pub fn actors(&self) -> impl Iterator<Item = Actor> {
        self.0.iter().map(|(actor, _)| *actor)
    }

    /// The actors with the kinds of their targets.
    #[must_use]
    pub fn targets(&self) -> Vec<(Actor, TargetKind)> {
        self.0.clone()
    }

    /// The actors of a namespace with the kinds of their targets.
    #[must_use]
    pub fn targets_in(&self, namespace: &str) -> Vec<(Actor, TargetKind)> {
        let all = self.0.iter().copied();
        all.filter(|(actor, _)| actor.0 == namespace).collect()
    }

    /// Whether the run has bindings.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Creates targets and actors, each pair in random order.
    pub fn begin(&mut self, random: &mut Rng) -> Vec<Action> {
        let mut actions = Vec::new();
        for (actor, kind) in &self.0 {
            let mut both = [
                Action::CreateTarget(*actor, *kind, random.u8(..4)),
                Action::Create(*actor, spec(random, actor, *kind)),
            ];
            if random.bool() {
                both.reverse();
            }
            actions.extend(both);
        }
        actions
    }

    /// Draws a later action.
    pub fn action(&self, random: &mut Rng) -> Action {
        let (actor, kind) = *pick(random, &self.0);
        match random.u8(..20) {
            0..=1 => Action::CreateTarget(actor, kind, random.u8(..4)),
            2..=4 => Action::ChangeTarget(actor, kind, random.u8(1..4)),
            5..=6 => Action::ScaleTarget(actor, kind, random.u8(..4)),
            7 => Action::DeleteTarget(actor, kind),
            8 => Action::Create(actor, spec(random, &actor, kind)),
            9..=13 => Action::Update(actor, change(random)),
            14..=15 => Action::Delete(actor),
            16 => Action::Publish(actor, random.u64(1..5)),
            17..=18 => Action::CrashWebhook(random.usize(..2), random.u64(..4)),
            _ => Action::CutWebhook(random.usize(..2), delay(random, 500..40_000)),
        }
    }
}

pub(crate) fn runtime(random: &mut Rng) -> Value {
    let version = random.u8(1..4).to_string();
    json!({"targetURL": "http://127.0.0.1:8000", "env": [{"name": "VERSION", "value": version}]})
}

pub(crate) fn scaling(random: &mut Rng) -> Value {
    let least = random.u8(..2);
    json!({"enabled": true, "minReplicas": least, "maxReplicas": least + random.u8(1..4)})
}

fn spec(random: &mut Rng, actor: &Actor, kind: TargetKind) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": kind.resource().kind, "name": target_name(actor.1)});
    let mut spec = json!({
        "transport": pick(random, &BROKERS),
        "workloadRef": target,
        "runtime": runtime(random),
        "binding": {"rollout": pick(random, &["Always", "Always", "OnRestart"]), "required": random.u8(..4) == 0},
        "queue": {"deletionPolicy": pick(random, &["Delete", "Delete", "Retain", "DeleteIfEmpty", "Drain"])},
    });
    if random.u8(..3) == 0 {
        spec["scaling"] = scaling(random);
    }
    spec
}

fn change(random: &mut Rng) -> Value {
    match random.u8(..8) {
        0..=2 => json!({"runtime": runtime(random)}),
        3 => json!({"scaling": null}),
        4 => json!({"scaling": scaling(random)}),
        5 => json!({"binding": {"rollout": pick(random, &["Always", "OnRestart"])}}),
        6 => json!({"binding": {"required": random.bool()}}),
        _ => json!({"transport": pick(random, &BROKERS)}),
    }
}
