//! Quotas of a run.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use crate::randomness::{delay, pick};
use crate::schedule::action::{Action, Actor};
use crate::schedule::bindings::{Bindings, runtime};
use crate::world::NAMESPACES;
use crate::world::owners::OwnerKind;
use crate::world::quotas::Limited;
use crate::world::targets::TargetKind;

/// In some runs, an administrator limits the pods of a namespace, often to hardly more than they use, and users want
/// more pods of a target there.
pub fn limits(random: &mut Rng, bindings: &Bindings, end: Duration) -> Vec<(Duration, Action)> {
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

/// In a third of all runs with targets, once everything else has happened: a quota leaves room for some pods of a
/// target as its owner specifies them, which request cpu and memory, but hardly any for the sidecar, while users and
/// the operator want new pods there.
pub fn tight(
    random: &mut Rng,
    targets: &[(Actor, TargetKind)],
    from: Duration,
) -> Vec<(Duration, Action)> {
    if targets.is_empty() || random.u8(..3) > 0 {
        return Vec::new();
    }
    let (actor, kind) = *pick(random, targets);
    let mut at = from + delay(random, 1_000..20_000);
    let cpu = 100 * random.u16(1..4);
    let memory = 64 * random.u16(1..4);
    let mut actions = vec![
        (at, Action::CreateTarget(actor, kind, random.u8(1..4))),
        (at, Action::RequestResources(actor, kind, cpu, memory)),
    ];
    if random.bool()
        && let Some(optional) = optional(actor, kind)
    {
        actions.push((at, optional));
    }
    at += delay(random, 1_000..60_000);
    for _ in 0..random.u8(1..4) {
        actions.push((at, fill(random, actor, kind)));
        for _ in 0..random.u8(1..4) {
            at += delay(random, 10..15_000);
            actions.push((at, wanting_pods(random, actor, kind)));
        }
        at += delay(random, 10..15_000);
    }
    actions
}

/// The binding lets pods start without the sidecar, and replaces them.
fn optional(actor: Actor, kind: TargetKind) -> Option<Action> {
    // Argo CD's Deployments may be bound with strategy Template, which has neither field.
    let has_fields = !matches!(kind, TargetKind::Owned(owner) if owner.is_gitops());
    let binding = json!({"required": false, "rollout": "Always"});
    has_fields.then(|| Action::Update(actor, json!({"binding": binding})))
}

/// Leaves room for some pods without the sidecar, which requests 20m and 64Mi.
fn fill(random: &mut Rng, actor: Actor, kind: TargetKind) -> Action {
    let limited = match kind {
        // Its pods request only GPUs.
        TargetKind::Owned(OwnerKind::Kaito) => Limited::Pods,
        _ => *pick(
            random,
            &[Limited::Cpu, Limited::Cpu, Limited::Memory, Limited::Pods],
        ),
    };
    let is_exact = random.u8(..4) > 0;
    let rest = match (limited, is_exact) {
        (Limited::Pods, true) => 0,
        (Limited::Pods, false) => random.i64(-1..2),
        (Limited::Cpu, true) => random.i64(..20),
        (Limited::Cpu, false) => random.i64(-40..60),
        (Limited::Memory, true) => random.i64(..64),
        (Limited::Memory, false) => random.i64(-64..192),
    };
    Action::FillQuota(actor, kind, limited, random.u8(..3), rest)
}

/// New pods of a target, additional ones or replacements.
fn wanting_pods(random: &mut Rng, actor: Actor, kind: TargetKind) -> Action {
    match random.u8(..10) {
        0..=2 => Action::ScaleTarget(actor, kind, random.u8(1..6)),
        3..=4 => Action::ChangeTarget(actor, kind, random.u8(1..4)),
        5..=6 => Action::Update(actor, json!({"runtime": runtime(random)})),
        7..=8 => Action::DeletePod(actor, kind, random.u8(..)),
        _ => Action::DeleteQuota(actor.0),
    }
}
