//! Plans the workload of a standalone actor, and the next step after the API server rejected one.

use asya_shared::api::InventoryEntry;
use asya_shared::inject::Replicas;
use asya_shared::names::annotation;

use super::{is_unchanged, not_owned, recorded};
use crate::cluster::workload::SELECTOR;
use crate::fault::{Fault, Reason, Requeue, StepError};
use crate::reconcile::desired::Standalone;
use crate::reconcile::model::child::{Child, ChildOwnership, unwatched_poll_interval};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::steps::{WorkloadStep, WorkloadUpdate};
use crate::record::WorkloadRecord;

/// The desired state that an existing workload is compared with.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInputs<'a> {
    /// Decides whether the object under the workload's name is the actor's.
    pub ownership: &'a ChildOwnership,
    pub standalone: &'a Standalone,
    /// The workload as last applied, from status.
    pub applied: Option<&'a InventoryEntry>,
}

pub(super) fn plan_workload(observed: &Observed) -> WorkloadStep {
    let Some(standalone) = observed.standalone() else {
        return WorkloadStep::Keep;
    };
    if let (Child::Foreign(account), Some(_)) =
        (&observed.service_account, &standalone.service_account)
    {
        return WorkloadStep::Blocked(not_owned("ServiceAccount", &account.metadata));
    }
    WorkloadInputs {
        ownership: &observed.ownership,
        standalone,
        applied: recorded_workload(observed),
    }
    .step(&observed.workload)
}

/// The inventory entry in status for the desired workload.
pub(super) fn recorded_workload(observed: &Observed) -> Option<&InventoryEntry> {
    let kind = observed.standalone()?.kind.name();
    recorded(&observed.previous.inventory, kind, &observed.key().name)
}

impl WorkloadInputs<'_> {
    /// Plans the step for the object that has the workload's name.
    fn step(&self, existing: &Child<WorkloadRecord>) -> WorkloadStep {
        match existing {
            Child::NotFound => WorkloadStep::Create,
            Child::Foreign(workload) => {
                WorkloadStep::Blocked(not_owned(workload.kind.name(), &workload.metadata))
            }
            // The end of its deletion triggers a reconcile, which recreates it.
            Child::Ours(workload) if workload.metadata.deleting => WorkloadStep::Keep,
            Child::Ours(workload) if self.is_as_desired(workload) => WorkloadStep::Keep,
            Child::Ours(workload) => self.update(workload),
        }
    }

    /// Plans the step after a rejected creation, for the `existing` object, which is not in the cache yet.
    ///
    /// # Errors
    /// `rejection` if the object does not exist after all, or a fault if it is foreign.
    pub fn after_rejected_creation(
        &self,
        existing: &Child<WorkloadRecord>,
        rejection: StepError,
    ) -> Result<WorkloadStep, StepError> {
        match self.step(existing) {
            WorkloadStep::Create => Err(rejection),
            WorkloadStep::Blocked(fault) => Err(fault.into()),
            step @ (WorkloadStep::Keep | WorkloadStep::Update(_)) => Ok(step),
        }
    }

    /// Decides from the immutable `fields` in which the workload differs from the desired one. The fault of a deletion
    /// is reported until the old workload is gone.
    pub fn after_invalid_update(&self, workload: &WorkloadRecord, fields: &[String]) -> Recreation {
        if fields.is_empty() {
            return Recreation::NotNeeded;
        }
        let problem = format!(
            "{} {} cannot be changed in {}",
            workload.kind.name(),
            workload.metadata.key,
            fields.join(", ")
        );
        let selects_others = fields.iter().any(|field| field == SELECTOR);
        if !self.ownership.actor.annotations.allow_recreate {
            let effect = if selects_others {
                "deletes it with its pods"
            } else {
                "deletes it and leaves its pods running"
            };
            let hint = format!(
                "annotation {}: \"true\" on the actor {effect} and recreates it",
                annotation::ALLOW_RECREATE
            );
            let text = format!("{problem}; {hint}");
            return Recreation::NotAllowed(fault(text, Requeue::SlowBackoff));
        }
        let requeue =
            unwatched_poll_interval(workload).map_or(Requeue::AwaitChange, Requeue::After);
        let fault = fault(format!("{problem}; it is being recreated"), requeue);
        if selects_others {
            Recreation::WithPods(fault)
        } else {
            Recreation::LeavingPods(fault)
        }
    }

    fn update(&self, workload: &WorkloadRecord) -> WorkloadStep {
        let take_over = workload.last_applied.go_operator_entry;
        let owned = workload.owns_replicas || take_over.is_some();
        WorkloadStep::Update(WorkloadUpdate {
            previous_owner: workload
                .metadata
                .other_owner(&self.ownership.actor.metadata.uid)
                .map(Into::into),
            take_over,
            hand_off_replicas: owned && !self.enforces_replicas(),
            take_over_kubectl_helm_fields: self.takes_over_kubectl_helm_fields(workload),
        })
    }

    fn enforces_replicas(&self) -> bool {
        matches!(self.standalone.workload.replicas, Replicas::Enforced(_))
    }

    /// Fields of kubectl and Helm are taken over only on request, and once per workload (FW-22).
    fn takes_over_kubectl_helm_fields(&self, workload: &WorkloadRecord) -> bool {
        self.ownership.actor.annotations.reclaim_fields && workload.has_kubectl_helm_fields
    }

    /// Whether the workload is as last applied. `spec.replicas` may have a field manager of its own, so its ownership
    /// is checked separately.
    fn is_as_desired(&self, workload: &WorkloadRecord) -> bool {
        let hash = &self.standalone.workload.applied.hash;
        (workload.owns_replicas || !self.enforces_replicas())
            && !self.takes_over_kubectl_helm_fields(workload)
            && self.applied.is_some_and(|entry| {
                is_unchanged(entry, &workload.metadata, &workload.last_applied, hash)
            })
    }
}

/// Whether and how to recreate a workload whose update the API server rejected as invalid (FW-22).
#[derive(Debug, PartialEq)]
pub enum Recreation {
    /// No immutable field differs: report the rejection.
    NotNeeded,
    /// The actor does not allow it.
    NotAllowed(Fault),
    /// Delete it, and its pods in the background: the new workload would not select them.
    WithPods(Fault),
    /// Delete it, and keep its pods running until the new workload adopts them.
    LeavingPods(Fault),
}

impl Recreation {
    pub fn deletes(&self) -> bool {
        match self {
            Self::WithPods(_) | Self::LeavingPods(_) => true,
            Self::NotNeeded | Self::NotAllowed(_) => false,
        }
    }
}

/// The fault of a workload that is kept, because the API server would reject the new one.
pub fn rejected_recreation(workload: &WorkloadRecord, rejection: &str) -> Fault {
    let kind = workload.kind.name();
    let key = &workload.metadata.key;
    let text = format!("{kind} {key} is kept, because a new one would be rejected: {rejection}");
    fault(text, Requeue::SlowBackoff)
}

fn fault(message: String, requeue: Requeue) -> Fault {
    Fault {
        reason: Reason::ReconcileError,
        message,
        requeue,
    }
}

#[cfg(test)]
mod tests;
