//! Inputs and outcomes of a rollout decision.

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::jiff::Timestamp;

use crate::binding::rollout_slots::RefusedEviction;
use crate::reconcile::contention::ContentionState;
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::target_pods::PodToReplace;

/// Requeue delay while a rollout waits for something that no watch reports, such as a disruption budget.
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
    /// The last eviction, if it was refused and must not be requested again yet.
    pub refused_eviction: Option<&'a RefusedEviction>,
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
    /// Wait: pods are being replaced.
    InProgress,
    /// Wait: no pod may be replaced yet.
    Wait {
        message: String,
        requeue_after: Duration,
    },
    /// Wait for a rollout slot (ROLL-2).
    AwaitSlot,
    /// Replace no more pods, for this reason, until a spec changes or the user asks for it (ROLL-5).
    Halted(String),
    /// Replace no more pods, for this reason, until all are ready (SAFE-13).
    Stalled(String),
    /// Another manager changed the annotation (CONF-2).
    RecordConflict(AnnotationConflict),
    /// Another manager keeps changing the annotation: stop writing it (CONF-6).
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

    /// Waits for something that no watch reports.
    pub fn wait(message: impl Into<String>) -> Self {
        Self::Wait {
            message: message.into(),
            requeue_after: RECHECK_INTERVAL,
        }
    }

    /// Whether it may replace pods later, without a change of a spec.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::InProgress | Self::Wait { .. } | Self::AwaitSlot)
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
