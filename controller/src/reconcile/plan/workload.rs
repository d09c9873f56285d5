//! Plans the workload of a standalone actor, and the next step after the API server has refused one.

use asya_shared::api::InventoryEntry;
use asya_shared::inject::Replicas;
use asya_shared::names::annotation;

use super::{is_unchanged, not_owned, recorded};
use crate::cluster::workload::SELECTOR;
use crate::fault::{Fault, Reason, Requeue, StepError};
use crate::reconcile::desired::Standalone;
use crate::reconcile::model::child::{Child, unseen};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::record::{ActorRecord, WorkloadRecord};

/// What a found workload is compared with.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadFacts<'a> {
    pub actor: &'a ActorRecord,
    pub own: &'a Standalone,
    /// The workload as last applied, from status.
    pub applied: Option<&'a InventoryEntry>,
}

pub(super) fn plan_workload(observed: &Observed) -> WorkloadStep {
    let Some(own) = observed.standalone() else {
        return WorkloadStep::Keep;
    };
    if let (Child::Foreign(account), Some(_)) = (&observed.service_account, &own.service_account) {
        return WorkloadStep::Refuse(not_owned("ServiceAccount", &account.metadata));
    }
    WorkloadFacts {
        actor: &observed.actor,
        own,
        applied: recorded_workload(observed),
    }
    .step(&observed.workload)
}

/// The inventory entry in status for the desired workload.
pub(super) fn recorded_workload(observed: &Observed) -> Option<&InventoryEntry> {
    let kind = observed.standalone()?.kind.name();
    recorded(&observed.previous.inventory, kind, &observed.key().name)
}

impl WorkloadFacts<'_> {
    /// Plans the step for the object found under the workload's name.
    fn step(&self, found: &Child<WorkloadRecord>) -> WorkloadStep {
        match found {
            Child::Absent => WorkloadStep::Create,
            Child::Foreign(workload) => {
                WorkloadStep::Refuse(not_owned(workload.kind.name(), &workload.metadata))
            }
            // Its deletion triggers a reconcile, which recreates it.
            Child::Ours(workload) if workload.metadata.deleting => WorkloadStep::Keep,
            Child::Ours(workload) if self.is_as_wanted(workload) => WorkloadStep::Keep,
            Child::Ours(workload) => self.update(workload),
        }
    }

    /// The step after a rejected creation, for the object that has the name and that no watch has shown yet.
    ///
    /// # Errors
    /// `rejection` if the name is free after all, or the fault of a foreign object.
    pub fn after_rejected_creation(
        &self,
        found: &Child<WorkloadRecord>,
        rejection: StepError,
    ) -> Result<WorkloadStep, StepError> {
        match self.step(found) {
            WorkloadStep::Create => Err(rejection),
            WorkloadStep::Refuse(fault) => Err(fault.into()),
            step @ (WorkloadStep::Keep | WorkloadStep::Update { .. }) => Ok(step),
        }
    }

    fn update(&self, workload: &WorkloadRecord) -> WorkloadStep {
        let take_over = workload.last.former;
        let owned = workload.owns_replicas || take_over.is_some();
        WorkloadStep::Update {
            take_over,
            hand_over: owned && !self.enforces_replicas(),
            reclaim: self.reclaims(workload),
        }
    }

    fn enforces_replicas(&self) -> bool {
        matches!(self.own.workload.replicas, Replicas::Enforced(_))
    }

    /// Fields are reclaimed only on request, and once for each workload (FW-22).
    fn reclaims(&self, workload: &WorkloadRecord) -> bool {
        self.actor.annotations.reclaim_fields && workload.reclaimable
    }

    /// Whether the workload is as last applied. `spec.replicas` may have a field manager of its own, so its ownership
    /// is checked separately.
    fn is_as_wanted(&self, workload: &WorkloadRecord) -> bool {
        let hash = &self.own.workload.kept.hash;
        (workload.owns_replicas || !self.enforces_replicas())
            && !self.reclaims(workload)
            && self
                .applied
                .is_some_and(|it| is_unchanged(it, &workload.metadata, &workload.last, hash))
    }
}

/// What becomes of a workload whose update the API server refused as invalid (FW-22).
#[derive(Debug, PartialEq)]
pub enum Recreation {
    /// No immutable field differs: report the refusal.
    NotCause,
    /// The actor does not allow a recreation.
    NotAllowed(Fault),
    /// Delete it, and its pods in the background: the new workload would not select them.
    WithPods(Fault),
    /// Delete it, and leave its pods at work until the new workload adopts them.
    LeavingPods(Fault),
}

/// Decides from the immutable `fields` in which the workload differs from the desired one. The fault of a deletion is
/// reported until the old workload is gone.
pub fn after_invalid_update(
    actor: &ActorRecord,
    workload: &WorkloadRecord,
    fields: &[String],
) -> Recreation {
    if fields.is_empty() {
        return Recreation::NotCause;
    }
    let what = format!(
        "{} {} cannot be changed in {}",
        workload.kind.name(),
        workload.metadata.key,
        fields.join(", ")
    );
    let selects_others = fields.iter().any(|field| field == SELECTOR);
    if !actor.annotations.allow_recreate {
        let its_pods = if selects_others {
            "deletes it with its pods"
        } else {
            "deletes it, leaves its pods at work"
        };
        let hint = format!(
            "annotation {}: \"true\" on the actor {its_pods} and makes it anew",
            annotation::ALLOW_RECREATE
        );
        let text = format!("{what}; {hint}");
        return Recreation::NotAllowed(fault(text, Requeue::SlowBackoff));
    }
    let again = unseen(workload).map_or(Requeue::AwaitChange, Requeue::After);
    let fault = fault(format!("{what}; it is being made anew"), again);
    if selects_others {
        Recreation::WithPods(fault)
    } else {
        Recreation::LeavingPods(fault)
    }
}

fn fault(message: String, retry: Requeue) -> Fault {
    Fault {
        reason: Reason::ReconcileError,
        message,
        retry,
    }
}

#[cfg(test)]
mod tests;
