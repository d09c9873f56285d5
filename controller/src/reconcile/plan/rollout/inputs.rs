//! Inputs and outcomes of a rollout decision.

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::jiff::Timestamp;

use crate::fault::Reason;
use crate::reconcile::contention::ContentionState;
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::target_pods::PodToReplace;

/// Requeue delay for the progress of a rollout, which no watch reports.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Requeue delay for a disruption budget.
pub const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Inputs to [`super::decide`].
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent inputs of one decision"
)]
pub struct RolloutInputs<'a> {
    /// When pods are replaced.
    pub rollout_policy: BindingRollout,
    /// Replace them now, whatever `rollout_policy` says.
    pub roll_now: bool,
    /// The binding is in effect: new pods get the sidecar (BIND-3).
    pub in_effect: bool,
    /// The URL of the model server is known.
    pub has_url: bool,
    /// The hash that pods should carry.
    pub desired_hash: &'a str,
    /// Pods that lack this hash, but whose replacements would carry it.
    pub outdated: &'a [PodToReplace],
    /// Pods of the target that are not terminating.
    pub active: i32,
    /// All pods of the target.
    pub total: i32,
    pub availability: &'a Availability,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    /// How the target's pods are replaced.
    pub method: &'a RolloutMethod,
    /// The target's owner is unknown, and so is which fields it reverts.
    pub unknown_owner: bool,
    /// The annotated objects, and the workloads that the annotation rolls; empty while no rollout is needed.
    pub objects: &'a [TargetObject],
    /// Identifies the current spec of the workloads.
    pub workload_specs_hash: &'a str,
    /// A `PodDisruptionBudget` that allows no disruption of these pods.
    pub blocking_pdb: Option<&'a str>,
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

/// The next step of a rollout.
#[derive(Clone, Debug, PartialEq)]
pub enum RolloutDecision {
    NotNeeded,
    /// Wait: pods are being replaced, or must not be replaced yet.
    Wait(Reason, String, Duration),
    /// Wait for a rollout slot (ROLL-2).
    AwaitSlot,
    /// See [`RolloutOutcome::Halted`].
    Halted(String),
    /// See [`RolloutOutcome::Stalled`].
    Stalled(String),
    /// Another manager changed the annotation (CONF-2).
    RecordConflict(AnnotationConflict),
    /// See [`RolloutOutcome::Yielded`].
    Yield,
    /// Execute this step after a dry run.
    Act(RolloutAction),
}

impl RolloutDecision {
    /// Whether it replaces pods. One that does not is executed under `reconcile: Once`, too, because the webhook
    /// depends on its result (FW-21).
    pub fn replaces_pods(&self) -> bool {
        !matches!(
            self,
            Self::NotNeeded | Self::Act(RolloutAction::VerifyInjection)
        )
    }

    pub fn wait(text: impl Into<String>) -> Self {
        Self::Wait(Reason::RolloutWaiting, text.into(), RECHECK_INTERVAL)
    }

    pub fn in_progress() -> Self {
        let text = "the target's pods are being replaced by pods with the sidecar";
        Self::Wait(
            Reason::RolloutInProgress,
            text.to_owned(),
            PROGRESS_INTERVAL,
        )
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Wait(..) | Self::AwaitSlot)
    }
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
