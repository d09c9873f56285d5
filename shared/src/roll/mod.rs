//! How a workload's own controller replaces its pods, in which order the operator evicts them, and which accelerators
//! they hold.

mod budget;
mod gpus;

use serde_json::Value;

use crate::resolve::{ObjectRef, RolloutMethod};

pub use budget::exhausted_budget;
pub use gpus::{gpus, requests_gpus};

/// Default of `maxSurge` and `maxUnavailable` of a Deployment, in percent.
const DEFAULT_PERCENT: i64 = 25;

/// How a workload's controller replaces its pods, and whether it does so now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent properties of the object"
)]
pub struct UpdateStrategy {
    /// Desired pods, if the workload specifies them.
    pub desired_replicas: Option<i32>,
    /// Its controller is rolling out pods.
    pub rolling: bool,
    /// `spec.paused` is set: its controller replaces no pods.
    pub paused: bool,
    /// A rollout may reduce the number of ready pods.
    pub reduces_ready: bool,
    /// A rollout stops all pods before it starts a replacement (a Deployment with strategy Recreate).
    pub recreates: bool,
    /// The operator must evict its pods, because its own rollout would replace none of them, or all together (ROLL-6).
    pub needs_eviction: bool,
    /// Its controller deletes a pod before it creates the replacement, even while other pods are not ready.
    pub deletes_pod_first: bool,
    /// Pods that a rollout may create beyond the desired number.
    pub max_surge: i32,
    /// Pods of the desired number that a rollout may leave unavailable.
    pub max_unavailable: i32,
}

impl UpdateStrategy {
    /// Reads a Deployment or `StatefulSet`. Of a `ReplicaSet`, `DaemonSet` or `LeaderWorkerSet` only the number of pods
    /// is known, which is the number of leaders; other kinds specify nothing.
    #[must_use]
    pub fn of(object: &ObjectRef, body: &Value) -> Self {
        let number = |path: &str| body.pointer(path).and_then(Value::as_i64);
        let text = |path: &str| body.pointer(path).and_then(Value::as_str);
        let replicas = number("/spec/replicas").unwrap_or(1);
        let updated = number("/status/updatedReplicas").unwrap_or(0);
        let total = number("/status/replicas").unwrap_or(0);
        let unobserved = number("/status/observedGeneration") < number("/metadata/generation");
        let mut strategy = Self::default();
        let kind = object.group_kind();
        match (kind.group, kind.kind) {
            ("apps", "Deployment") => {
                let of_update =
                    |field: &str| body.pointer(&format!("/spec/strategy/rollingUpdate/{field}"));
                let max_unavailable = of_update("maxUnavailable");
                strategy.rolling = unobserved || updated < replicas || total > updated;
                strategy.paused = body.pointer("/spec/paused") == Some(&Value::Bool(true));
                strategy.recreates = text("/spec/strategy/type") == Some("Recreate");
                // Evictions replace its pods one by one (SAFE-14).
                strategy.needs_eviction = strategy.recreates;
                strategy.reduces_ready =
                    strategy.needs_eviction || rounded_down(max_unavailable, replicas) >= 1;
                if !strategy.needs_eviction {
                    strategy.max_surge = count(rounded_up(of_update("maxSurge"), replicas));
                    // The Deployment controller lets one pod be unavailable if a rollout could not proceed otherwise.
                    let min = i64::from(strategy.max_surge == 0);
                    strategy.max_unavailable =
                        count(rounded_down(max_unavailable, replicas).max(min));
                }
            }
            ("apps", "StatefulSet") => {
                let partition = number("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
                strategy.needs_eviction =
                    text("/spec/updateStrategy/type") == Some("OnDelete") || partition > 0;
                strategy.rolling = unobserved
                    || (!strategy.needs_eviction
                        && text("/status/currentRevision") != text("/status/updateRevision")
                        && updated < replicas);
                strategy.reduces_ready = true;
                strategy.deletes_pod_first = true;
                strategy.max_unavailable = 1;
            }
            ("apps", "ReplicaSet") | ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => {}
            ("apps", "DaemonSet") => {
                strategy.desired_replicas = number("/status/desiredNumberScheduled").map(count);
                return strategy;
            }
            _ => return strategy,
        }
        strategy.desired_replicas = Some(count(replicas));
        strategy
    }
}

fn count(number: i64) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// A number of pods, or the percentage of them.
enum Share {
    Percent(i64),
    Pods(i64),
}

impl Share {
    /// `None` for a text that is no percentage.
    fn of(field: Option<&Value>) -> Option<Self> {
        match field {
            Some(Value::String(percent)) => {
                let percent = percent.strip_suffix('%')?.parse().ok()?;
                Some(Self::Percent(percent))
            }
            Some(number) => number.as_i64().map(Self::Pods),
            None => Some(Self::Percent(DEFAULT_PERCENT)),
        }
    }
}

fn rounded_down(field: Option<&Value>, replicas: i64) -> i64 {
    match Share::of(field) {
        Some(Share::Percent(percent)) => percent.saturating_mul(replicas) / 100,
        Some(Share::Pods(pods)) => pods,
        None => 0,
    }
}

fn rounded_up(field: Option<&Value>, replicas: i64) -> i64 {
    match Share::of(field) {
        Some(Share::Percent(percent)) => percent.saturating_mul(replicas).saturating_add(99) / 100,
        Some(Share::Pods(pods)) => pods,
        None => 0,
    }
}

/// Whether only the operator replaces pods one by one, by eviction (ROLL-6). Both iterators yield the field of that
/// name from each workload's [`UpdateStrategy`].
#[must_use]
pub fn requires_eviction(
    roll: &RolloutMethod,
    mut needs_eviction: impl Iterator<Item = bool>,
    deletes_pod_first: impl Iterator<Item = bool>,
) -> bool {
    match roll {
        RolloutMethod::Evict => true,
        RolloutMethod::AnnotateTemplate(_) => {
            needs_eviction.any(|it| it) || several_lose_a_pod(deletes_pod_first)
        }
        RolloutMethod::Annotate(..) => needs_eviction.any(|it| it),
    }
}

/// Whether several workloads would each lose a pod at the same time if all were annotated (SAFE-14).
/// `deletes_pod_first` is that of each workload's [`UpdateStrategy`].
#[must_use]
pub fn several_lose_a_pod(deletes_pod_first: impl Iterator<Item = bool>) -> bool {
    deletes_pod_first.filter(|it| *it).count() > 1
}

/// Whether eviction, which replaces only outdated pods, spares at least as many current ones, which a rollout would
/// also replace. Only if the target's own update strategy also removes a pod before its replacement is ready (SAFE-17),
/// which `reduces_ready` says for each workload. `matched` counts all pods of the target, `outdated` those to replace.
#[must_use]
pub fn eviction_spares_most_pods(
    roll: &RolloutMethod,
    mut reduces_ready: impl ExactSizeIterator<Item = bool>,
    outdated: usize,
    matched: usize,
) -> bool {
    let current = matched.saturating_sub(outdated);
    matches!(roll, RolloutMethod::AnnotateTemplate(_))
        && reduces_ready.len() > 0
        && reduces_ready.all(|it| it)
        && current > 0
        && current >= outdated
}

/// The pod to evict next: one that is not ready, because replacing it costs no availability; of several, the last one
/// by name (SAFE-11).
pub fn next_to_evict<'a, P>(
    pods: impl IntoIterator<Item = &'a P>,
    is_ready: impl Fn(&P) -> bool,
    name: impl Fn(&'a P) -> &'a str,
) -> Option<&'a P> {
    pods.into_iter()
        .max_by_key(|&pod| (!is_ready(pod), name(pod)))
}

#[cfg(test)]
mod tests;
