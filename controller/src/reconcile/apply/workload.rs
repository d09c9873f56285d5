//! Reconciles the workload.

use std::sync::Arc;

use asya_shared::resolve::GroupKind;

use super::child::inventory_entry;
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::model::outcome::StandaloneOutcome;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::reconcile::plan::workload::{Recreation, WorkloadInputs, rejected_recreation};
use crate::record::WorkloadRecord;

/// Executes the workload step for the `existing` object of that name.
pub(super) async fn ensure_workload(
    context: &Context,
    inputs: WorkloadInputs<'_>,
    step: WorkloadStep,
    existing: Option<Arc<WorkloadRecord>>,
    outcome: &mut StandaloneOutcome,
) -> Result<(), Error> {
    let written = match step {
        WorkloadStep::Create => create(context, inputs, outcome).await,
        step => update(context, inputs, step, existing).await,
    };
    match written {
        Ok(Some(workload)) => {
            let kind = GroupKind {
                group: "apps",
                kind: workload.kind.name(),
            };
            let desired = &inputs.standalone.workload.applied;
            let metadata = &workload.metadata;
            let last = &workload.last_applied;
            let entry = inventory_entry(kind, metadata, last, &desired.hash);
            outcome.common.applied.push(entry);
            outcome.workload = Some(workload);
        }
        Ok(None) => {}
        Err(failed) => outcome.common.fault = Some(failed.fault()?),
    }
    Ok(())
}

/// Creates the workload if its name is free. If an object of ours that is not in the cache yet has the name, updates
/// that.
async fn create(
    context: &Context,
    inputs: WorkloadInputs<'_>,
    outcome: &mut StandaloneOutcome,
) -> Result<Option<Arc<WorkloadRecord>>, StepError> {
    let standalone = inputs.standalone;
    let key = &inputs.ownership.actor.metadata.key;
    let workloads = &context.workloads;
    let created = workloads
        .create(standalone.kind, key, &standalone.workload.to_create())
        .await;
    let rejection = match created {
        Ok(workload) => return Ok(Some(workload)),
        Err(error) => StepError::of_write(&describe(inputs), error),
    };
    if !rejection.object_may_exist() {
        return Err(rejection);
    }
    let found = workloads
        .read(standalone.kind, key)
        .await
        .map_err(Error::Api)?;
    let existing = inputs.ownership.classify(found, |it| &it.metadata);
    let step = inputs.after_rejected_creation(&existing, rejection)?;
    outcome.workload = existing.ours().cloned();
    update(context, inputs, step, existing.ours().cloned()).await
}

/// Updates the existing workload as planned. First takes over or hands off the object and its fields; otherwise the
/// apply would change more than it states.
async fn update(
    context: &Context,
    inputs: WorkloadInputs<'_>,
    step: WorkloadStep,
    existing: Option<Arc<WorkloadRecord>>,
) -> Result<Option<Arc<WorkloadRecord>>, StepError> {
    let update = match step {
        WorkloadStep::Update(update) => update,
        WorkloadStep::Blocked(fault) => return Err(fault.into()),
        WorkloadStep::Keep | WorkloadStep::Create => return Ok(None),
    };
    let Some(existing) = existing else {
        return Ok(None);
    };
    let workloads = &context.workloads;
    let successor = &inputs.ownership.actor.metadata.uid;
    if let Some(owner) = &update.previous_owner {
        workloads.reparent(&existing, owner, successor).await?;
    }
    let rejected = |error| StepError::of_write(&describe(inputs), error);
    if update.hand_off_replicas {
        workloads
            .hand_off_replicas(&existing)
            .await
            .map_err(rejected)?;
    }
    if let Some(index) = update.take_over {
        workloads
            .take_over_go_operator_fields(&existing, index)
            .await?;
    }
    if update.take_over_kubectl_helm_fields {
        workloads.take_over_kubectl_helm_fields(&existing).await?;
    }
    let object = &inputs.standalone.workload.applied.object;
    let updated = if inputs.ownership.actor.metadata.deleting {
        // At a deletion with propagation policy Orphan, the garbage collector may have removed our owner reference
        // already. Applying it again would hide that the object is to stay (FW-23 (g)).
        workloads.update_unchanged(&existing, object).await
    } else {
        workloads.update(&existing, object).await
    };
    match updated {
        Ok(workload) => Ok(Some(workload)),
        Err(error) if is_invalid(&error) => {
            recreate(context, inputs, &existing, rejected(error)).await
        }
        Err(error) => Err(rejected(error)),
    }
}

/// Deletes a workload whose immutable fields have to change, if that is allowed (FW-22).
async fn recreate(
    context: &Context,
    inputs: WorkloadInputs<'_>,
    existing: &WorkloadRecord,
    rejection: StepError,
) -> Result<Option<Arc<WorkloadRecord>>, StepError> {
    let workloads = &context.workloads;
    let key = &existing.metadata.key;
    let object = &inputs.standalone.workload.applied.object;
    let fields = workloads.immutable_differences(existing.kind, key, object);
    let fields = fields.await.map_err(Error::Api)?;
    let recreation = inputs.after_invalid_update(existing, &fields);
    if recreation.deletes() {
        // Checked before the deletion: otherwise, nothing would run until the user corrects the spec.
        let created = inputs.standalone.workload.to_create();
        let rejection = workloads.creation_rejection(existing.kind, key, &created);
        if let Some(text) = rejection.await.map_err(Error::Api)? {
            return Err(rejected_recreation(existing, &text).into());
        }
    }
    Err(match recreation {
        Recreation::NotNeeded => rejection,
        Recreation::NotAllowed(fault) => fault.into(),
        Recreation::WithPods(fault) => {
            workloads.delete(existing).await?;
            fault.into()
        }
        Recreation::LeavingPods(fault) => {
            workloads.delete_orphaning_pods(existing).await?;
            fault.into()
        }
    })
}

fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

fn describe(inputs: WorkloadInputs<'_>) -> String {
    let key = &inputs.ownership.actor.metadata.key;
    format!("{} {key}", inputs.standalone.kind.name())
}
