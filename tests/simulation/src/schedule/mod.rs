//! Everything that happens in a run, except faults of single calls. Derived from the seed.

pub mod action;
pub mod bindings;
pub mod owners;
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
use crate::world::quotas::Limited;

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
            actions.extend(quotas(&mut seed.rng_for("plan of quotas"), &bindings, at));
        }
        actions.sort_by_key(|(at, _)| *at);
        let at = actions.last().map_or(at, |(last, _)| at.max(*last));
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

/// In some runs, an administrator limits the pods of a namespace, often to hardly more than they use, and users want
/// more pods of a target there.
fn quotas(random: &mut Rng, bindings: &Bindings, end: Duration) -> Vec<(Duration, Action)> {
    if random.u8(..4) > 0 {
        return Vec::new();
    }
    let namespace = *pick(random, &NAMESPACES);
    let end = u64::try_from(end.as_millis()).unwrap_or(u64::MAX);
    let targets = bindings.targets_in(namespace);
    let mut at = Duration::ZERO;
    let mut actions = Vec::new();
    for _ in 0..random.u8(1..4) {
        at += delay(random, 10..end);
        let action = match random.u8(..9) {
            0 => Action::DeleteQuota(namespace),
            1..=2 => Action::SetQuota(namespace, Limited::Pods, random.i64(-1..3)),
            3 => Action::SetQuota(namespace, Limited::Cpu, random.i64(-50..100)),
            _ => nearly_full(random, namespace),
        };
        actions.push((at, action));
        if !targets.is_empty() && random.u8(..4) > 0 {
            let (actor, kind) = *pick(random, &targets);
            let more = Action::ScaleTarget(actor, kind, random.u8(2..5));
            actions.push((at + delay(random, 10..10_000), more));
        }
    }
    // At the end, nothing else makes up for a pod that is missing.
    if !targets.is_empty() && random.bool() {
        let (actor, kind) = *pick(random, &targets);
        let at = Duration::from_millis(end);
        actions.push((at, nearly_full(random, namespace)));
        let more = Action::ScaleTarget(actor, kind, 4);
        actions.push((at + delay(random, 10..5_000), more));
    }
    actions
}

/// Leaves room for some pods of a target, which request 100m each, but perhaps not with the sidecar, which takes 20m.
fn nearly_full(random: &mut Rng, namespace: &'static str) -> Action {
    let room = 100 * random.i64(0..3) + random.i64(0..25);
    Action::SetQuota(namespace, Limited::Cpu, room)
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
