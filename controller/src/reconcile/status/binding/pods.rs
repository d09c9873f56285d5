//! The pods of a target, as far as they have been listed.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::pods::summary::PodSummary;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::target_pods::{TargetPodCounts, TargetPods};
use crate::record::PodRecord;

/// The pods of a target.
pub(super) struct CountedPods {
    pub(super) counts: TargetPodCounts,
    pub(super) health: PodSummary,
    /// The replicas that the target specifies, or else all of its pods.
    pub(super) desired: i32,
}

/// Counts the pods; `None` until they have been listed.
pub(super) fn count_pods(
    observed: &Observed,
    binding: &ObservedBinding,
    since: Option<&Time>,
    desired: Option<i32>,
    now: Timestamp,
) -> Option<CountedPods> {
    let bound = observed.desired_binding()?;
    let pods = binding.pods()?;
    let injected = injected_pods(observed, pods);
    let counts = TargetPodCounts::of(pods, &observed.actor.metadata.uid, bound, since);
    Some(CountedPods {
        health: PodSummary::count(&injected, None, now),
        desired: desired.unwrap_or(counts.total),
        counts,
    })
}

/// Pods with this actor's sidecar; failures in another actor's sidecar are not its fault.
fn injected_pods(observed: &Observed, pods: &TargetPods) -> Vec<Arc<PodRecord>> {
    let uid = &observed.actor.metadata.uid;
    let is_own = |pod: &&Arc<PodRecord>| {
        pod.injection
            .as_ref()
            .is_some_and(|injection| injection.by == *uid)
    };
    pods.labelled.iter().filter(is_own).cloned().collect()
}
