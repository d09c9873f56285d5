//! Whether a target may be scaled for the first time. A serving model is not handed over to the queue before its pods
//! are known to get the sidecar: without it nothing would consume the messages, and an empty queue would scale the
//! model to zero.

use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::bound_pods::Counted;
use crate::reconcile::model::observed::Observed;

/// Inputs to [`waits_for`].
#[derive(Clone, Debug, Default)]
pub struct ScalingGateFacts {
    /// Our `ScaledObject` exists. An earlier release may have created it sooner than this one would.
    pub exists: bool,
    /// New pods are known to get the sidecar that the actor asks for now: by a dry run, or from their template.
    pub proved: bool,
    /// The target's pods, and which of them are Ready with a sidecar; `None` while pods have not been listed.
    pub ready: Option<ReadyPods>,
    /// Replicas that the target asks for, if it specifies them.
    pub wanted: Option<i32>,
    /// Running pods are left alone until they restart for another reason.
    pub on_restart: bool,
}

/// Numbers of a target's pods.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadyPods {
    /// All pods, including terminating ones.
    pub total: i32,
    /// Pods that are not terminating.
    pub matched: i32,
    /// Ready, with a sidecar of the actor.
    pub injected: i32,
    /// Ready, with the sidecar that the actor asks for now.
    pub current: i32,
}

impl ReadyPods {
    fn of(counted: &Counted) -> Self {
        Self {
            total: counted.total,
            matched: counted.pods.matched,
            injected: counted.ready,
            current: counted.current_ready,
        }
    }
}

/// What the `ScaledObject` waits for; `None`: it may be created.
pub fn waits_for(facts: &ScalingGateFacts) -> Option<&'static str> {
    if facts.exists {
        return None;
    }
    let Some(pods) = facts.ready else {
        return Some("the target is scaled once its pods have been listed");
    };
    let proved = facts.proved || pods.current > 0;
    // During a rollout there may be no pod between an old one and its replacement. At 0 replicas, a pod that does not
    // terminate must not keep the queue from scaling the target.
    let expected = facts.wanted.map_or(pods.total > 0, |wanted| wanted > 0);
    let runs = pods.matched > 0 || expected;
    if !runs {
        return (!proved).then_some(
            "the target is scaled once a dry run has shown that new pods get the sidecar (condition Injected)",
        );
    }
    if pods.injected == 0 && facts.on_restart {
        return Some(
            "the target is scaled once one of its pods, Ready, has the sidecar; spec.binding.rollout is OnRestart, so restart a pod, or set rollout to Always",
        );
    }
    if pods.injected == 0 {
        return Some(
            "the target is scaled once one of its pods, Ready, has the sidecar (condition Injected)",
        );
    }
    (!proved).then_some(
        "the target is scaled once a pod, Ready, has the sidecar that the actor asks for now (condition Injected)",
    )
}

/// The same, from the observed state.
pub(super) fn of(observed: &Observed, seen: &BindingSeen) -> Option<&'static str> {
    let bound = observed.bound()?;
    let previous = &observed.previous;
    let pods = seen
        .pods
        .as_ref()
        .filter(|_| previous.bound_since.is_some());
    let (uid, hash) = (
        &*observed.actor.metadata.uid,
        bound.injected_hash.as_deref(),
    );
    let counted = pods.map(|pods| Counted::of(pods, uid, hash, previous.bound_since.as_ref()));
    waits_for(&ScalingGateFacts {
        exists: observed.scaling.scaled_object.ours().is_some(),
        proved: observed.proved(),
        ready: counted.as_ref().map(ReadyPods::of),
        wanted: observed.resolved().and_then(|it| it.replicas),
        on_restart: bound.rollout == asya_shared::api::BindingRollout::OnRestart,
    })
}

#[cfg(test)]
mod tests;
