//! Selects the next pod of a target to evict (ROLL-4, SAFE-11, SAFE-12).
//!
//! An eviction costs the target a ready pod until the replacement is ready, if it ever is. So pods are replaced one at
//! a time: if replacements are broken, the target loses a single pod.

use std::time::Duration;

use asya_shared::roll::next_to_evict;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::target_pods::PodToReplace;

/// Inputs to an eviction decision.
#[derive(Clone, Copy, Debug)]
pub struct EvictionInputs<'a> {
    /// Pods to replace. No pod of the target is terminating.
    pub candidates: &'a [PodToReplace],
    pub availability: &'a Availability,
    /// Pods of the target that are not terminating.
    pub active: i32,
    /// Number of pods at the last eviction.
    pub previous_pods: Option<i32>,
    /// When a replacement was last requested.
    pub requested_at: Option<Timestamp>,
    /// How long a replacement may take to become ready (`spec.timeout.progress`).
    pub limit: Option<Duration>,
    pub now: Timestamp,
}

/// Why no ready pod may be evicted now.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionBlocker {
    pub text: String,
    /// The missing or unready pod has taken longer than a replacement may take to become ready.
    pub readiness_overdue: bool,
}

impl EvictionInputs<'_> {
    /// Why no ready pod may be evicted now; `None` if all other pods exist and are ready.
    pub fn blocker(&self) -> Option<EvictionBlocker> {
        let others = self.availability.unready.iter();
        let others = others.filter(|pod| {
            !self
                .candidates
                .iter()
                .any(|candidate| candidate.uid == pod.uid)
        });
        let newest = others.max_by_key(|pod| (pod.created.as_ref().map(|it| it.0), &pod.name));
        let desired = self
            .availability
            .desired_replicas
            .or(self.previous_pods)
            .unwrap_or(0);
        let missing = desired - self.active;
        let text = match newest {
            Some(pod) => format!("pod {} is not ready", pod.name),
            None if missing > 0 => format!("{missing} of {desired} pods do not exist"),
            None => return None,
        };
        // A pod created later gets the full limit.
        let created_at = newest.and_then(|pod| pod.created.as_ref()).map(|it| it.0);
        let started_at = self
            .requested_at
            .map(|since| created_at.map_or(since, |it| it.max(since)));
        Some(EvictionBlocker {
            text,
            readiness_overdue: started_at.is_some_and(|start| self.readiness_overdue(start)),
        })
    }

    fn readiness_overdue(&self, start: Timestamp) -> bool {
        let deadline = self.limit.and_then(|limit| start.checked_add(limit).ok());
        deadline.is_some_and(|deadline| deadline <= self.now)
    }

    /// A candidate that is not ready, so that replacing it costs no availability.
    pub fn unready_candidate(&self) -> Option<&PodToReplace> {
        self.unready_candidate_if(|_| true)
    }

    /// Like [`Self::unready_candidate`], but only among those that `may_go`.
    pub fn unready_candidate_if(
        &self,
        may_go: impl Fn(&PodToReplace) -> bool,
    ) -> Option<&PodToReplace> {
        let unready = &self.availability.unready;
        let is_unready = |pod: &&PodToReplace| unready.iter().any(|unready| unready.uid == pod.uid);
        let all = self.candidates.iter().filter(is_unready);
        all.filter(|pod| may_go(pod))
            .max_by(|a, b| a.name.cmp(&b.name))
    }

    /// The next candidate to evict if there is no blocker.
    pub fn next_candidate(&self) -> Option<&PodToReplace> {
        let unready = &self.availability.unready;
        let is_ready = |pod: &PodToReplace| !unready.iter().any(|unready| unready.uid == pod.uid);
        next_to_evict(self.candidates, is_ready, |pod| &pod.name)
    }

    pub fn limit_text(&self) -> String {
        let seconds = self.limit.unwrap_or_default().as_secs();
        format!("{seconds} s (spec.timeout.progress)")
    }
}

#[cfg(test)]
mod tests;
