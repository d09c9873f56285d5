//! Whether to create the first `ScaledObject` of a target. A serving model is not scaled by the queue before its pods
//! are known to get the sidecar: without it, nothing would consume the messages, and an empty queue would scale the
//! model to zero.

use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::target_pods::TargetPodCounts;

/// Inputs to [`blocked_by`].
#[derive(Clone, Debug, Default)]
pub struct ScalingStartInputs {
    /// Our `ScaledObject` exists, perhaps because an earlier version created it sooner than this one would.
    pub exists: bool,
    /// New pods are known to get the actor's current sidecar, by a dry run or from their template.
    pub injection_verified: bool,
    /// The target's pods, and how many are Ready with a sidecar; `None` until pods have been listed.
    pub ready: Option<ReadyPodCounts>,
    /// Desired replicas of the target, if it specifies them.
    pub desired_replicas: Option<i32>,
    /// Running pods are left alone until they restart for another reason.
    pub on_restart: bool,
}

/// Numbers of a target's pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadyPodCounts {
    /// All pods, including terminating ones.
    pub total: i32,
    /// Pods that are not terminating.
    pub active: i32,
    /// Ready, with a sidecar of the actor.
    pub injected: i32,
    /// Ready, with the actor's current sidecar.
    pub current: i32,
}

impl ReadyPodCounts {
    fn of(counts: &TargetPodCounts) -> Self {
        Self {
            total: counts.total,
            active: counts.pods.matched,
            injected: counts.ready,
            current: counts.current_ready,
        }
    }
}

/// What the `ScaledObject` waits for; `None` if it may be created.
pub fn blocked_by(inputs: &ScalingStartInputs) -> Option<&'static str> {
    if inputs.exists {
        return None;
    }
    let Some(pods) = inputs.ready else {
        return Some("scaling starts once the target's pods have been listed");
    };
    let verified = inputs.injection_verified || pods.current > 0;
    // A rollout may delete a pod before it creates the replacement, so the absence of pods does not mean zero replicas.
    // At zero replicas, a pod that does not terminate must not keep the queue from scaling the target.
    let expects_pods = inputs
        .desired_replicas
        .map_or(pods.total > 0, |replicas| replicas > 0);
    let is_running = pods.active > 0 || expects_pods;
    if !is_running {
        return (!verified).then_some(
            "scaling starts once a dry run has shown that new pods get the sidecar (condition Injected)",
        );
    }
    if pods.injected == 0 && inputs.on_restart {
        return Some(
            "scaling starts once a Ready pod of the target has the sidecar; spec.binding.rollout is OnRestart, so \
             restart a pod, or set rollout to Always",
        );
    }
    if pods.injected == 0 {
        return Some(
            "scaling starts once a Ready pod of the target has the sidecar (condition Injected)",
        );
    }
    (!verified).then_some(
        "scaling starts once a Ready pod has the sidecar that the actor's spec asks for now (condition Injected)",
    )
}

/// [`blocked_by`] for the observed state.
pub(super) fn scaling_start_blocker(
    observed: &Observed,
    binding: &ObservedBinding,
) -> Option<&'static str> {
    let bound = observed.desired_binding()?;
    let previous = &observed.previous;
    let since = previous.bound_since.as_ref();
    let pods = binding.pods().filter(|_| since.is_some());
    let uid = &*observed.actor.metadata.uid;
    let counts = pods.map(|pods| TargetPodCounts::of(pods, uid, bound, since));
    blocked_by(&ScalingStartInputs {
        exists: observed.scaling.scaled_object.ours().is_some(),
        injection_verified: observed.is_injection_verified(),
        ready: counts.as_ref().map(ReadyPodCounts::of),
        desired_replicas: observed.resolved().and_then(|it| it.replicas),
        on_restart: bound.rollout == asya_shared::api::BindingRollout::OnRestart,
    })
}

#[cfg(test)]
mod tests;
