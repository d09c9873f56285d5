//! Everything that happens in a run, except faults of single calls. Derived from the seed.

pub mod action;
pub mod bindings;
pub mod owners;
mod quotas;
pub mod transports;

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use self::action::{Action, Actor};
use self::bindings::Bindings;
use self::owners::Owned;
use crate::installation::BROKERS;
use crate::randomness::{Seed, delay, pick};
use crate::world::NAMESPACES;
use crate::world::owners::OwnerKind;

/// The schedule of a run.
pub struct Schedule {
    /// Number of controller replicas. If there are several, they elect a leader.
    pub replicas: usize,
    /// Fraction of calls that fail.
    pub fault_rate: f64,
    /// The actions, with their times.
    pub actions: Vec<(Duration, Action)>,
    /// The owners of targets that run, each with its namespace.
    pub owners: BTreeSet<(OwnerKind, &'static str)>,
    /// When the last action is over and faults end.
    pub end: Duration,
}

/// Maximum clock skew in seconds. It changes during a run, so two times may differ by twice as much.
pub const MAX_CLOCK_SKEW: i16 = 120;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Each queue name is used only in one namespace: the first namespace has the first two actors, the second the last.
fn actors() -> [Actor; 3] {
    let [first, second] = NAMESPACES;
    [(first, NAMES[0]), (first, NAMES[1]), (second, NAMES[2])]
}

impl Schedule {
    /// Draws the schedule of a seed.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        let mut random = seed.rng_for("plan");
        let replicas = if random.u8(..3) == 0 { 2 } else { 1 };
        let fault_rate = *pick(&mut random, &[0.0, 0.02, 0.08, 0.2]);
        let mut at = Duration::from_secs(1);
        let mut actions = Vec::new();
        let mut bindings = Bindings::new(&mut random);
        for actor in &actors()[..random.usize(1..=3)] {
            actions.push((at, Action::Create(*actor, spec(&mut random))));
            at += delay(&mut random, 0..3_000);
        }
        for action in bindings.begin(&mut random) {
            actions.push((at, action));
            at += delay(&mut random, 0..3_000);
        }
        for _ in 0..random.usize(2..10) {
            at += delay(&mut random, 10..12_000);
            let binds = bindings.any() && random.bool();
            let next = if binds {
                bindings.action(&mut random)
            } else {
                action(&mut random, replicas)
            };
            actions.push((at, next));
        }
        transports::assign(seed, actions.iter_mut().map(|(_, action)| action));
        let owned = Owned::new(&mut seed.rng_for("owners"));
        actions.extend(owned.actions(&mut seed.rng_for("actions on owned targets")));
        actions.extend(owned.rights(&mut seed.rng_for("rights on owned targets")));
        actions.extend(around_the_cluster(
            &mut seed.rng_for("plan of the cluster"),
            at,
        ));
        let all: Vec<Actor> = actors().into_iter().chain(bindings.actors()).collect();
        actions.extend(pauses(&mut seed.rng_for("plan of pauses"), at));
        actions.extend(rivals(&mut seed.rng_for("plan of rivals"), &all, at));
        if bindings.any() || !owned.owners().is_empty() {
            let random = &mut seed.rng_for("plan of quotas");
            actions.extend(quotas::limits(random, &bindings, at));
        }
        let last = |actions: &[(Duration, Action)]| actions.iter().map(|(at, _)| *at).max();
        let at = last(&actions).map_or(at, |last| at.max(last));
        // After everything else, so that a seed with tight quotas does the same as it would without them until then.
        let mut targets = bindings.targets();
        targets.extend(owned.targets());
        let random = &mut seed.rng_for("plan of tight quotas");
        actions.extend(quotas::tight(random, &targets, at));
        actions.sort_by_key(|(at, _)| *at);
        let at = last(&actions).map_or(at, |last| at.max(last));
        Self {
            replicas,
            fault_rate,
            actions,
            owners: owned.owners(),
            end: at + Duration::from_secs(1),
        }
    }
}

/// Cluster-wide actions, from the start to a little after the last action on actors: KEDA comes and goes, and clocks
/// are wrong.
fn around_the_cluster(random: &mut Rng, end: Duration) -> Vec<(Duration, Action)> {
    let mut actions = Vec::new();
    let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
    if random.u8(..4) == 0 {
        let stops_first = random.u8(..3) == 0;
        let at = delay(random, 0..end);
        actions.push((at, Action::UninstallKeda { stops_first }));
        // Without KEDA, objects with its finalizers would never be deleted.
        if stops_first || random.u8(..3) > 0 {
            actions.push((at + delay(random, 10..60_000), Action::InstallKeda));
        }
    }
    if random.u8(..4) == 0 {
        for _ in 0..random.u8(1..4) {
            actions.push((
                delay(random, 0..end),
                Action::SetClock(random.i16(-MAX_CLOCK_SKEW..MAX_CLOCK_SKEW)),
            ));
        }
    }
    actions
}

/// In some runs, a user pauses an actor for a while, and often changes it meanwhile. The last pause ends.
fn pauses(random: &mut Rng, end: Duration) -> Vec<(Duration, Action)> {
    if random.u8(..4) > 0 {
        return Vec::new();
    }
    let actor = *pick(random, &actors());
    let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
    let mut at = delay(random, 2_000.min(end)..end + 1);
    let mut actions = vec![(at, Action::Pause(actor))];
    if random.u8(..3) > 0 {
        at += delay(random, 10..8_000);
        actions.push((at, Action::Update(actor, change(random))));
    }
    at += delay(random, 10..20_000);
    actions.push((at, Action::Resume(actor)));
    actions
}

/// In some runs, a user scales an actor's workload with an HPA, possibly only for a while.
fn rivals(random: &mut Rng, actors: &[Actor], end: Duration) -> Vec<(Duration, Action)> {
    if random.u8(..5) > 0 {
        return Vec::new();
    }
    let actor = *pick(random, actors);
    let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
    let at = delay(random, 2_000.min(end)..end + 1);
    let mut actions = vec![(at, Action::CreateHpa(actor))];
    if random.bool() {
        actions.push((at + delay(random, 10..40_000), Action::DeleteHpa(actor)));
    }
    actions
}

fn action(random: &mut Rng, replicas: usize) -> Action {
    let actor = *pick(random, &actors());
    let replica = random.usize(..replicas);
    match random.u8(..24) {
        0..=1 => Action::Create(actor, spec(random)),
        2..=9 => Action::Update(actor, change(random)),
        10..=11 => Action::Delete(actor),
        12 => Action::Orphan(actor),
        13..=14 => Action::Publish(actor, random.u64(1..5)),
        15..=16 => {
            let kinds = ["Deployment", "StatefulSet", "ScaledObject", "ConfigMap"];
            let kind = *pick(random, &kinds);
            Action::DeleteChild(actor, kind)
        }
        17 => Action::ChangeChild(actor),
        18 => Action::DeleteQueue(actor),
        19..=20 => Action::Crash(replica, random.u64(..12)),
        21 => Action::Stop(replica),
        22 => Action::Partition(replica, delay(random, 500..15_000)),
        _ => Action::Compact,
    }
}

fn image(random: &mut Rng) -> String {
    format!("handler:{}", random.u8(1..4))
}

fn template(random: &mut Rng) -> Value {
    let environment = json!([{"name": "ASYA_HANDLER", "value": "echo.handle"}]);
    json!({"spec": {"containers": [{"name": "asya-runtime", "image": image(random), "env": environment}]}})
}

fn scaling(random: &mut Rng) -> Value {
    let least = random.u8(..2);
    json!({"enabled": true, "minReplicas": least, "maxReplicas": least + random.u8(1..4)})
}

fn spec(random: &mut Rng) -> Value {
    let mut spec = json!({
        "transport": pick(random, &BROKERS),
        "workload": {"kind": pick(random, &["Deployment", "Deployment", "StatefulSet"]), "template": template(random)},
        "queue": {"deletionPolicy": pick(random, &["Delete", "Delete", "Retain", "DeleteIfEmpty", "Drain"])},
    });
    if random.bool() {
        spec["scaling"] = scaling(random);
    } else {
        spec["workload"]["replicas"] = random.u8(..3).into();
    }
    if random.u8(..6) == 0 {
        spec["deletionPolicy"] = "Orphan".into();
    }
    spec
}

fn change(random: &mut Rng) -> Value {
    match random.u8(..6) {
        0..=1 => json!({"workload": {"template": template(random)}}),
        2 => json!({"scaling": null, "workload": {"replicas": random.u8(..3)}}),
        3 => json!({"scaling": scaling(random), "workload": {"replicas": null}}),
        _ => json!({"transport": pick(random, &BROKERS)}),
    }
}
