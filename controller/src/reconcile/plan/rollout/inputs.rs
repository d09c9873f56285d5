//! Inputs and outcomes of a rollout decision.

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use crate::fault::Reason;
use crate::reconcile::contention::{ContentionState, SpecRevision};
use crate::reconcile::model::bound_pods::PodToReplace;
use crate::reconcile::model::rollout::{Availability, TargetObject};
use crate::reconcile::plan::evict;

/// Requeue delay for the progress of a rollout, which no watch reports.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Requeue delay for a disruption budget or a slot.
pub const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Inputs to [`super::decide`].
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent inputs of one decision"
)]
pub struct RolloutInputs<'a> {
    /// When pods are replaced.
    pub rollout: BindingRollout,
    /// Replace them now, whatever `rollout` says.
    pub roll_now: bool,
    /// The binding is active: new pods get the sidecar (BIND-3).
    pub bound: bool,
    /// The URL of the model server is known.
    pub has_url: bool,
    /// The hash that pods should carry.
    pub desired_hash: &'a str,
    /// Pods that lack this hash, but whose replacements would carry it.
    pub outdated: &'a [PodToReplace],
    /// Pods of the target that are not terminating.
    pub matched: i32,
    /// All pods of the target.
    pub total: i32,
    pub availability: &'a Availability,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    /// How the target's pods are replaced.
    pub roll: &'a Roll,
    /// The target's owner is unknown, and so is which fields it reverts.
    pub unknown_owner: bool,
    /// The annotated objects, and the workloads that the annotation rolls; empty while no rollout is needed.
    pub objects: &'a [TargetObject],
    /// Identifies the current spec of the workloads.
    pub target_spec_hash: &'a str,
    /// A `PodDisruptionBudget` that allows no disruption of these pods.
    pub budget: Option<&'a str>,
    /// Whether another target may be rolled.
    pub has_slot: bool,
    /// The rollout so far, from status.
    pub previous: Option<&'a RolloutStatus>,
    /// Contention state of the annotation.
    pub contention: &'a ContentionState,
    /// A dry run has shown that such pods get the sidecar, or none is needed.
    pub injection_verified: bool,
    /// The actor's generation.
    pub generation: i64,
    pub now: Timestamp,
}

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutDecision {
    /// Nothing to do.
    NotNeeded,
    /// Wait: pods are being replaced, or must not be replaced yet.
    Wait(Reason, String, Duration),
    /// See [`RolloutOutcome::Halted`].
    Halt(String),
    /// Wait until an overdue replacement becomes ready.
    Stall(String),
    /// Another manager changed the annotation (CONF-2).
    RecordConflict(AnnotationConflict),
    /// See [`RolloutOutcome::Yielded`].
    Yield,
    /// Execute this step after a dry run.
    Act(RolloutAction),
}

/// An annotation that another manager has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnotationConflict {
    /// The object that carried it.
    pub object: ObjectRef,
    /// Yield the annotation: pods are evicted from now on.
    pub yields: bool,
}

/// A step of the rollout.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutAction {
    /// Only the dry run, because there is no pod that shows whether new ones get the sidecar.
    VerifyInjection,
    /// Write this value of the annotation.
    Annotate(String),
    /// Evict this pod, so that its controller replaces it.
    Evict(PodToReplace),
}

impl RolloutInputs<'_> {
    /// Whether the recorded rollout has the same value and, if it was halted, the same specs. Otherwise the rollout
    /// starts over.
    pub fn is_continued(&self, previous: &RolloutStatus) -> bool {
        previous.value == self.desired_hash && (!previous.halted || self.has_halted_specs(previous))
    }

    pub fn has_halted_specs(&self, previous: &RolloutStatus) -> bool {
        previous.generation == self.generation && previous.target_spec_hash == self.target_spec_hash
    }

    pub fn revision(&self) -> SpecRevision {
        SpecRevision {
            generation: self.generation,
            target_spec_hash: self.target_spec_hash.to_owned(),
        }
    }

    /// Whether our annotation is written to this object.
    pub fn annotates(&self, candidate: &TargetObject) -> bool {
        match self.roll {
            Roll::AnnotateTemplate(_) => true,
            Roll::Annotate(object, _) => *object == candidate.object,
            Roll::Evict => false,
        }
    }

    pub fn has_our_value(&self, candidate: &TargetObject) -> bool {
        let value = candidate.roll_value.as_deref();
        value.is_some_and(|value| retry_number(self.desired_hash, value).is_some())
    }

    /// Inputs to replace `candidates` one by one.
    pub fn eviction<'b>(
        &'b self,
        candidates: &'b [PodToReplace],
        previous: Option<&RolloutStatus>,
    ) -> evict::EvictionInputs<'b> {
        evict::EvictionInputs {
            candidates,
            availability: self.availability,
            active: self.matched,
            previous_pods: previous.and_then(|it| it.pods),
            requested_at: previous.and_then(|it| it.since.as_ref()).map(|it| it.0),
            limit: self.limit,
            now: self.now,
        }
    }

    /// Whether a pod of the target is terminating.
    pub fn has_terminating_pod(&self) -> bool {
        self.total > self.matched || self.availability.has_terminating
    }

    pub fn elapsed(&self, previous: Option<&RolloutStatus>) -> Option<Duration> {
        let since = previous?.since.as_ref()?;
        self.now.duration_since(since.0).try_into().ok()
    }
}

/// The retry number appended to `desired`, 0 if there is none; `None` if the value has another hash.
pub fn retry_number(desired: &str, value: &str) -> Option<u32> {
    match value.strip_prefix(desired)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok(),
    }
}

pub fn wait_for_slot(inputs: &RolloutInputs<'_>) -> Option<RolloutDecision> {
    let text =
        "the maximum number of targets is being rolled out; waiting for one of them to finish";
    (!inputs.has_slot)
        .then(|| RolloutDecision::Wait(Reason::RolloutWaiting, text.to_owned(), RECHECK_INTERVAL))
}

pub fn in_progress() -> RolloutDecision {
    let text = "the target's pods are being replaced by pods with the sidecar";
    RolloutDecision::Wait(
        Reason::RolloutInProgress,
        text.to_owned(),
        PROGRESS_INTERVAL,
    )
}
