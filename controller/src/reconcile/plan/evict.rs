//! Which pod of a target may be evicted next (ROLL-4, SAFE-11, SAFE-12).
//!
//! An eviction costs the target a ready pod until the replacement is ready, and nobody knows beforehand whether it ever
//! will be. So at most one pod is being replaced at a time: if replacements are broken, the target loses one pod and
//! keeps the others.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::rollout::Availability;

/// Inputs to an eviction decision.
#[derive(Clone, Copy, Debug)]
pub struct EvictionFacts<'a> {
    /// Pods to replace; none of the target's pods is terminating.
    pub candidates: &'a [OutdatedPod],
    pub availability: &'a Availability,
    /// Pods of the target that are not terminating.
    pub present: i32,
    /// How many there were at the last eviction.
    pub before: Option<i32>,
    /// When a replacement was last requested.
    pub since: Option<Timestamp>,
    /// How long a replacement may take to become ready (`spec.timeout.progress`).
    pub limit: Option<Duration>,
    pub now: Timestamp,
}

/// Why no ready pod may be evicted now.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    pub text: String,
    /// It has lasted longer than a replacement may take.
    pub is_overdue: bool,
}

impl EvictionFacts<'_> {
    /// Why no ready pod may be evicted now; `None`: all other pods exist and are ready.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let others = self.availability.unready.iter();
        let others = others.filter(|pod| !self.candidates.iter().any(|it| it.uid == pod.uid));
        let newest = others.max_by_key(|pod| (pod.created.as_ref().map(|it| it.0), &pod.name));
        let wanted = self.availability.wanted.or(self.before).unwrap_or(0);
        let missing = wanted - self.present;
        let text = match newest {
            Some(pod) => format!("pod {} is not ready", pod.name),
            None if missing > 0 => format!("{missing} of {wanted} pods are missing"),
            None => return None,
        };
        // A pod created later gets the full limit.
        let came = newest.and_then(|pod| pod.created.as_ref()).map(|it| it.0);
        let begun = self
            .since
            .map(|since| came.map_or(since, |it| it.max(since)));
        Some(Obstacle {
            text,
            is_overdue: begun.is_some_and(|begun| self.is_over(begun)),
        })
    }

    fn is_over(&self, begun: Timestamp) -> bool {
        let ends = self.limit.and_then(|limit| begun.checked_add(limit).ok());
        ends.is_some_and(|ends| ends <= self.now)
    }

    /// A candidate that is not ready: replacing it costs no availability.
    pub fn unready_candidate(&self) -> Option<&OutdatedPod> {
        let unready = &self.availability.unready;
        let is_unready = |pod: &&OutdatedPod| unready.iter().any(|it| it.uid == pod.uid);
        let all = self.candidates.iter().filter(is_unready);
        all.max_by(|a, b| a.name.cmp(&b.name))
    }

    /// The next candidate to evict if there is no obstacle.
    pub fn next(&self) -> Option<&OutdatedPod> {
        let last = || self.candidates.iter().max_by(|a, b| a.name.cmp(&b.name));
        self.unready_candidate().or_else(last)
    }

    pub fn limit_text(&self) -> String {
        let seconds = self.limit.unwrap_or_default().as_secs();
        format!("{seconds} s (spec.timeout.progress)")
    }
}

/// First and longest backoff after a refused eviction.
const REFUSED: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_mins(5);

/// Backoff after an eviction was refused, and so many `times` in a row before (ROLL-4).
pub fn backoff(times: u32) -> Duration {
    REFUSED.saturating_mul(1 << times.min(8)).min(LONGEST)
}

#[cfg(test)]
mod tests;
