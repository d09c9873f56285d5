//! Summary of an actor's pods (STA-1 to STA-3).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::record::{PodRecord, Problem, ProblemClass};

/// How long a container's failed exit counts as a failure (STA-2).
const FAILED_EXIT_RETENTION: Duration = Duration::from_mins(10);

#[derive(Clone, Debug, PartialEq)]
pub struct FailedPod {
    pub problem: Problem,
    pub pod: Arc<str>,
}

impl FailedPod {
    /// The message for a condition (STA-3).
    pub fn message(&self) -> String {
        let Self { problem, pod } = self;
        match &problem.container {
            Some(container) => format!("Container {container}: {} (pod {pod})", problem.reason),
            None => format!("{} (pod {pod})", problem.reason),
        }
    }
}

/// Counts of an actor's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSummary {
    /// Ready pods of the current template.
    pub current_ready: i32,
    /// Pods of an older template that are not terminating.
    pub outdated: i32,
    /// Terminating pods of the current template.
    pub terminating: i32,
    /// All pods that have not finished, including terminating ones.
    pub existing: i32,
    /// Pods with a known failure.
    pub failing: i32,
    /// Other pods that are not ready.
    pub pending: i32,
    /// The pod of the current template whose failure has the highest class.
    pub failure: Option<FailedPod>,
    /// Earliest time since which a running pod of the current template has been unready.
    pub unready_since: Option<Timestamp>,
    /// When the next failed exit stops counting.
    pub failure_expires: Option<Timestamp>,
}

impl PodSummary {
    /// Counts `pods`; `template_hash` is that of the current template.
    pub fn count(pods: &[Arc<PodRecord>], template_hash: Option<&str>, now: Timestamp) -> Self {
        let mut counts = Self::default();
        // Sort by name, so that of several equal failures every reconcile reports the same pod.
        let mut by_name: Vec<_> = pods.iter().collect();
        by_name.sort_by(|one, other| one.metadata.key.name.cmp(&other.metadata.key.name));
        for pod in by_name {
            counts.add(pod, template_hash, now);
        }
        counts
    }

    fn add(&mut self, pod: &PodRecord, template_hash: Option<&str>, now: Timestamp) {
        if pod.finished {
            return;
        }
        self.existing += 1;
        let current = template_hash.is_none() || pod.template_hash.as_deref() == template_hash;
        if pod.metadata.deleting {
            self.terminating += i32::from(current);
            return;
        }
        if !current {
            self.outdated += 1;
        }
        if pod.ready {
            self.current_ready += i32::from(current);
            return;
        }
        let Some(problem) = self.problem(pod, now) else {
            self.pending += 1;
            if current && let Some(since) = &pod.unready_since {
                self.unready_since = Some(
                    self.unready_since
                        .map_or(since.0, |earliest| earliest.min(since.0)),
                );
            }
            return;
        };
        if problem.class == ProblemClass::PendingResources {
            self.pending += 1;
        } else {
            self.failing += 1;
        }
        let first = self
            .failure
            .as_ref()
            .is_none_or(|known| problem.class < known.problem.class);
        if current && first {
            let pod = Arc::clone(&pod.metadata.key.name);
            self.failure = Some(FailedPod { problem, pod });
        }
    }

    fn problem(&mut self, pod: &PodRecord, now: Timestamp) -> Option<Problem> {
        let mut exited = Vec::new();
        for (problem, at) in &pod.failed_exits {
            let ends =
                at.0.checked_add(FAILED_EXIT_RETENTION)
                    .unwrap_or(Timestamp::MAX);
            if now < ends {
                self.failure_expires = Some(
                    self.failure_expires
                        .map_or(ends, |earliest| earliest.min(ends)),
                );
                exited.push(problem.clone());
            }
        }
        pod.problem
            .iter()
            .cloned()
            .chain(exited)
            .min_by_key(|problem| problem.class)
    }
}

#[cfg(test)]
mod tests;
