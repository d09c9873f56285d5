//! Reconciles the workload.

use std::sync::Arc;

use super::child::entry;
use super::recreate;
use crate::context::Context;
use crate::fault::{Error, Fault, may_be_taken, refused};
use crate::reconcile::desired::Standalone;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::plan_found;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::record::WorkloadRecord;

/// The workload as written, or why it is not in the wanted state.
type Written = Result<Arc<WorkloadRecord>, Fault>;

/// Result of creating the workload.
enum Creation {
    /// No other object had its name.
    Tried(Written),
    /// This object has its name, and no watch has shown it yet.
    Taken(Child<WorkloadRecord>),
}

/// Executes the workload step.
pub(super) async fn ensure_workload(
    context: &Context,
    observed: &Observed,
    own: &Standalone,
    step: WorkloadStep,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let written = match step {
        WorkloadStep::Create => match create(context, observed, own).await? {
            Creation::Tried(written) => Some(written),
            Creation::Taken(found) => {
                let step = plan_found(observed, &found, own);
                ensured.workload = found.ours().cloned();
                bring(context, observed, own, (found.ours(), step)).await?
            }
        },
        step => bring(context, observed, own, (observed.workload.ours(), step)).await?,
    };
    match written {
        Some(Ok(workload)) => {
            let (kind, wanted) = (workload.kind.name(), &own.workload.kept);
            let (metadata, last) = (&workload.metadata, &workload.last);
            let entry = entry(("apps", kind), metadata, last, &wanted.hash);
            ensured.applied.push(entry);
            ensured.workload = Some(workload);
        }
        Some(Err(fault)) => ensured.fault = Some(fault),
        None => {}
    }
    Ok(())
}

/// Creates the workload if its name is free. An existing object is left alone.
async fn create(
    context: &Context,
    observed: &Observed,
    own: &Standalone,
) -> Result<Creation, Error> {
    let (key, workloads) = (observed.key(), &context.workloads);
    let made = workloads.create(own.kind, key, &own.workload.first()).await;
    let refusal = match made {
        Ok(workload) => return Ok(Creation::Tried(Ok(workload))),
        Err(error) => refused(&what(own, observed), error),
    };
    if may_be_taken(&refusal) {
        let found = workloads.live(own.kind, key).await.map_err(Error::Api)?;
        let found = observed.ownership.judge(found, |it| &it.metadata);
        if !matches!(found, Child::Absent) {
            return Ok(Creation::Taken(found));
        }
    }
    refusal.map(Err).map(Creation::Tried)
}

/// Updates the found workload, as far as the step says.
async fn bring(
    context: &Context,
    observed: &Observed,
    own: &Standalone,
    (found, step): (Option<&Arc<WorkloadRecord>>, WorkloadStep),
) -> Result<Option<Written>, Error> {
    let found = match (found, &step) {
        (_, WorkloadStep::Refuse(fault)) => return Ok(Some(Err(fault.clone()))),
        (Some(found), WorkloadStep::Update { .. }) => found,
        (None, _) | (_, WorkloadStep::Keep | WorkloadStep::Create) => return Ok(None),
    };
    if let Err(fault) = prepare_update(context, observed, (found, &step)).await? {
        return Ok(Some(Err(fault)));
    }
    apply(context, observed, own, found).await.map(Some)
}

/// Transfers ownership of the object and its fields before an apply, which would otherwise change more than it states.
async fn prepare_update(
    context: &Context,
    observed: &Observed,
    (workload, step): (&WorkloadRecord, &WorkloadStep),
) -> Result<Result<(), Fault>, Error> {
    let WorkloadStep::Update {
        take_over,
        hand_over,
        reclaim,
    } = *step
    else {
        return Ok(Ok(()));
    };
    let heir = &observed.actor.metadata.uid;
    if let Some(owner) = workload.metadata.owner_before(heir) {
        context.workloads.bequeath(workload, owner, heir).await?;
    }
    if hand_over && let Err(error) = context.workloads.hand_over_replicas(workload).await {
        let what = format!("{} {}", workload.kind.name(), workload.metadata.key);
        return refused(&what, error).map(Err);
    }
    if let Some(index) = take_over {
        context.workloads.take_over_fields(workload, index).await?;
    }
    if reclaim {
        context.workloads.reclaim_fields(workload).await?;
    }
    Ok(Ok(()))
}

async fn apply(
    context: &Context,
    observed: &Observed,
    own: &Standalone,
    found: &WorkloadRecord,
) -> Result<Written, Error> {
    let object = &own.workload.kept.object;
    let error = match context.workloads.update(found, object).await {
        Ok(workload) => return Ok(Ok(workload)),
        Err(error) => error,
    };
    if matches!(&error, kube::Error::Api(status) if status.code == 422) {
        let fault = recreate::if_allowed(context, observed, found, object).await?;
        if let Some(fault) = fault {
            return Ok(Err(fault));
        }
    }
    refused(&what(own, observed), error).map(Err)
}

fn what(own: &Standalone, observed: &Observed) -> String {
    format!("{} {}", own.kind.name(), observed.key())
}
