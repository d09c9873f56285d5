//! Reconciles the workload.

use std::sync::Arc;

use super::child::entry;
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::desired::Standalone;
use crate::reconcile::model::child::Ownership;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::reconcile::plan::workload::{Recreation, WorkloadFacts, after_invalid_update};
use crate::record::{ActorRecord, WorkloadRecord};

/// Executes the workload step for the object found under its name.
pub(super) async fn ensure_workload(
    context: &Context,
    facts: WorkloadFacts<'_>,
    ownership: &Ownership,
    (step, found): (WorkloadStep, Option<Arc<WorkloadRecord>>),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let written = match step {
        WorkloadStep::Create => create(context, facts, ownership, ensured).await,
        step => update(context, facts, (step, found)).await,
    };
    match written {
        Ok(Some(workload)) => {
            let (kind, wanted) = (workload.kind.name(), &facts.own.workload.kept);
            let (metadata, last) = (&workload.metadata, &workload.last);
            let entry = entry(("apps", kind), metadata, last, &wanted.hash);
            ensured.applied.push(entry);
            ensured.workload = Some(workload);
        }
        Ok(None) => {}
        Err(refused) => ensured.fault = Some(refused.fault()?),
    }
    Ok(())
}

/// Creates the workload if its name is free. An object of ours that no watch has shown yet is updated instead.
async fn create(
    context: &Context,
    facts: WorkloadFacts<'_>,
    ownership: &Ownership,
    ensured: &mut Ensured,
) -> Result<Option<Arc<WorkloadRecord>>, StepError> {
    let (own, key) = (facts.own, &facts.actor.metadata.key);
    let workloads = &context.workloads;
    let created = workloads.create(own.kind, key, &own.workload.first()).await;
    let rejection = match created {
        Ok(workload) => return Ok(Some(workload)),
        Err(error) => StepError::of_write(&what(own, facts.actor), error),
    };
    if !rejection.may_be_taken() {
        return Err(rejection);
    }
    let found = workloads.live(own.kind, key).await.map_err(Error::Api)?;
    let found = ownership.judge(found, |it| &it.metadata);
    let step = facts.after_rejected_creation(&found, rejection)?;
    ensured.workload = found.ours().cloned();
    update(context, facts, (step, found.ours().cloned())).await
}

/// Updates the found workload, as far as the step says. Transfers ownership of the object and its fields first: the
/// apply would otherwise change more than it states.
async fn update(
    context: &Context,
    facts: WorkloadFacts<'_>,
    (step, found): (WorkloadStep, Option<Arc<WorkloadRecord>>),
) -> Result<Option<Arc<WorkloadRecord>>, StepError> {
    let (take_over, hand_over, reclaim) = match step {
        WorkloadStep::Update {
            take_over,
            hand_over,
            reclaim,
        } => (take_over, hand_over, reclaim),
        WorkloadStep::Refuse(fault) => return Err(fault.into()),
        WorkloadStep::Keep | WorkloadStep::Create => return Ok(None),
    };
    let Some(found) = found else {
        return Ok(None);
    };
    let (workloads, successor) = (&context.workloads, &facts.actor.metadata.uid);
    if let Some(owner) = found.metadata.owner_before(successor) {
        workloads.reparent(&found, owner, successor).await?;
    }
    let refused = |error| StepError::of_write(&what(facts.own, facts.actor), error);
    if hand_over {
        workloads
            .hand_over_replicas(&found)
            .await
            .map_err(refused)?;
    }
    if let Some(index) = take_over {
        workloads.take_over_fields(&found, index).await?;
    }
    if reclaim {
        workloads.reclaim_fields(&found).await?;
    }
    let object = &facts.own.workload.kept.object;
    match workloads.update(&found, object).await {
        Ok(workload) => Ok(Some(workload)),
        Err(error) if is_invalid(&error) => recreate(context, facts, &found, refused(error)).await,
        Err(error) => Err(refused(error)),
    }
}

/// Deletes a workload whose immutable fields have to change, if that is allowed (FW-22).
async fn recreate(
    context: &Context,
    facts: WorkloadFacts<'_>,
    found: &WorkloadRecord,
    rejection: StepError,
) -> Result<Option<Arc<WorkloadRecord>>, StepError> {
    let (workloads, key) = (&context.workloads, &found.metadata.key);
    let object = &facts.own.workload.kept.object;
    let fields = workloads.immutable_differences(found.kind, key, object);
    let fields = fields.await.map_err(Error::Api)?;
    Err(match after_invalid_update(facts.actor, found, &fields) {
        Recreation::NotCause => rejection,
        Recreation::NotAllowed(fault) => fault.into(),
        Recreation::WithPods(fault) => {
            workloads.delete(found).await?;
            fault.into()
        }
        Recreation::LeavingPods(fault) => {
            workloads.delete_leaving_pods(found).await?;
            fault.into()
        }
    })
}

fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

fn what(own: &Standalone, actor: &ActorRecord) -> String {
    format!("{} {}", own.kind.name(), actor.metadata.key)
}
