//! Inputs to unbinding, and the possible decisions.

use std::time::Duration;

use asya_shared::resolve::RolloutMethod;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::{TargetObject, UNBIND_MARKER, UnbindLimits};
use crate::reconcile::model::target_pods::PodToReplace;
use crate::reconcile::plan::evict::EvictionInputs;
use crate::reconcile::plan::rollout::params::slot_time;

/// How long the controller of an owner, such as an operator, may take to start a rollout.
const OWNER_START_DELAY: Duration = Duration::from_secs(30);
/// A rollout that has not started by then is no longer expected.
const ROLLOUT_START_LIMIT: Duration = Duration::from_mins(10);
/// A webhook replica that is behind may inject the replacement of an evicted pod as well.
pub(super) const LATE_EVICTION_INTERVAL: Duration = Duration::from_secs(30);

/// Inputs to [`decide`](super::decide).
#[derive(Clone, Debug)]
pub struct UnbindInputs<'a> {
    /// UID of the actor.
    pub actor: &'a str,
    /// Cleanup is not needed: the user opted out, or the namespace is being deleted.
    pub skip: bool,
    /// Pods with the actor's sidecar that are not terminating.
    pub pods: &'a [PodToReplace],
    /// Name of such a pod that has no controller to replace it.
    pub unmanaged_pod: Option<&'a str>,
    /// A pod with the sidecar is terminating.
    pub has_terminating: bool,
    /// The queue has scaled the target to zero; it is scaled up after unbinding (SO-6).
    pub scaled_to_zero: bool,
    /// Availability of the target's pods; `None` if nothing that we do replaces them, or the target does not exist.
    pub availability: Option<&'a Availability>,
    /// Number of pods of the target at the last eviction.
    pub previous_pods: Option<i32>,
    /// Time of the last action, or of the actor's deletion.
    pub since: Option<Timestamp>,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    pub now: Timestamp,
    /// How the target's pods are replaced; `None` if the actor has no target any more.
    pub method: Option<&'a RolloutMethod>,
    /// The objects that may carry our annotation, and the workloads that it rolls.
    pub objects: &'a [TargetObject],
    /// Set if the target's pods are unknown.
    pub unresolved: Option<UnresolvedTarget<'a>>,
    /// Time since unbinding last acted: gave up or changed our fields, or evicted a pod; `None` if it has not yet.
    pub since_last_action: Option<Duration>,
    pub limits: UnbindLimits,
}

/// A target whose pods cannot be determined.
#[derive(Clone, Copy, Debug)]
pub struct UnresolvedTarget<'a> {
    pub reason: &'a str,
    /// We may have written to it before.
    pub may_have_fields: bool,
}

/// The next step of unbinding.
#[derive(Clone, Debug, PartialEq)]
pub enum UnbindStep {
    /// No pod has the sidecar, or cleanup is not needed.
    Done,
    /// The target's pods have not been observed yet.
    Unknown,
    /// Wait: pods are being replaced, or go with their target.
    InProgress,
    /// The maximum number of targets is being rolled out.
    AwaitSlot,
    /// Blocked for this reason until a user or another controller acts.
    Blocked(String),
    /// No other pod is replaced until all exist and are ready, for this reason.
    Stalled(String),
    /// Give up our fields: that restores the spec, and the target's controller replaces the pods.
    GiveUp,
    /// Write another value, because removing the annotation would not trigger a rollout.
    ChangeValue,
    /// Evict this pod, which is not ready, before fields are given up.
    EvictUnready(PodToReplace),
    /// Evict this pod: no field of ours is left whose removal would trigger a rollout.
    Evict(PodToReplace),
}

impl UnbindInputs<'_> {
    pub(super) fn await_slot(&self) -> Option<UnbindStep> {
        (!self.limits.has_slot).then_some(UnbindStep::AwaitSlot)
    }

    /// Waits after a refused eviction, whatever happens to the pods meanwhile (ROLL-4 (c)).
    pub(super) fn after_refusal(&self) -> Option<UnbindStep> {
        let refused = self.limits.refused_eviction.as_ref();
        let refused = refused.filter(|it| it.time_left(self.now).is_some())?;
        Some(UnbindStep::Blocked(refused.message.clone()))
    }

    /// Whether the target's controller is replacing pods because we gave up our fields, as far as that can be told, and
    /// for no longer than the slot is held.
    pub(super) fn is_rolling_for_us(&self) -> bool {
        let is_recent = self
            .since_last_action
            .is_some_and(|elapsed| elapsed < slot_time(self.limit));
        is_recent && self.objects.iter().any(|it| it.rolling)
    }

    /// Whether pods that the target's controller creates get the sidecar from their template.
    pub(super) fn template_has_sidecar(&self) -> bool {
        let mut objects = self.objects.iter();
        self.has_template_fields() || objects.any(|it| it.sidecar_of(self.actor).is_some())
    }

    pub(super) fn is_ready(&self, pod: &PodToReplace) -> bool {
        let unready = self.availability.iter().flat_map(|it| &it.unready);
        !unready.into_iter().any(|unready| unready.uid == pod.uid)
    }

    /// An annotation in the owner's spec: its controller rolls the pods when the value changes, not when it is removed.
    pub(super) fn only_new_values_roll(&self) -> bool {
        matches!(self.method, Some(RolloutMethod::Annotate(_, path)) if path.first() == Some(&"spec"))
    }

    /// Whether objects have fields of ours that an earlier reconcile has not given up.
    pub(super) fn must_give_up_fields(&self) -> bool {
        // A value that remains after that belongs to another field manager.
        let given_up = self
            .since_last_action
            .is_some_and(|elapsed| !self.only_new_values_roll() || elapsed > ROLLOUT_START_LIMIT);
        !given_up && (self.has_annotation() || self.has_template_fields())
    }

    pub(super) fn has_annotation(&self) -> bool {
        self.objects.iter().any(TargetObject::has_annotation)
    }

    pub(super) fn has_template_fields(&self) -> bool {
        let mut objects = self.objects.iter();
        objects.any(|it| it.has_template_fields_of(self.actor))
    }

    pub(super) fn has_unbind_marker(&self) -> bool {
        let mut values = self.objects.iter().map(|it| it.roll_value.as_deref());
        values.any(|value| value == Some(UNBIND_MARKER))
    }

    /// Whether the target's owner may not have started yet to replace pods.
    pub(super) fn owner_may_be_starting(&self) -> bool {
        let is_recent = self
            .since_last_action
            .is_some_and(|elapsed| elapsed < OWNER_START_DELAY);
        is_recent && matches!(self.method, Some(RolloutMethod::Annotate(..)))
    }

    pub(super) fn evicting<'a>(&'a self, availability: &'a Availability) -> EvictionInputs<'a> {
        EvictionInputs {
            candidates: self.pods,
            availability,
            active: availability.active,
            previous_pods: self.previous_pods,
            requested_at: self.since,
            limit: self.limit,
            now: self.now,
        }
    }

    /// A pod with the sidecar that is not ready and not new.
    pub(super) fn unready_candidate<'a>(
        &self,
        evicting: &'a EvictionInputs<'_>,
    ) -> Option<&'a PodToReplace> {
        evicting.unready_candidate_if(|pod| !self.is_new(pod))
    }

    /// Whether a webhook replica that is behind has only just injected the pod. It gets time to become ready; otherwise
    /// each replacement would be evicted in turn.
    pub(super) fn is_new(&self, pod: &PodToReplace) -> bool {
        let created = pod.created.as_ref().map(|it| it.0);
        created.is_some_and(|created| {
            let age = self.now.duration_since(created).unsigned_abs();
            self.since.is_some_and(|since| created > since) && age < LATE_EVICTION_INTERVAL
        })
    }

    /// Whether what unbinding waits for has taken longer than a replacement may, since it last acted.
    pub(super) fn is_overdue(&self) -> bool {
        let limit = self.since.zip(self.limit);
        let deadline = limit.and_then(|(since, limit)| since.checked_add(limit).ok());
        deadline.is_some_and(|deadline| deadline <= self.now)
    }
}
