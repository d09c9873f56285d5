//! Tears down what we created: the scaling objects, the workload, its `ServiceAccount` and queue, the shared objects,
//! and finally our finalizer.

use tracing::warn;

use super::finalizer::patch_finalizers;
use super::remove_queue::delete_queues;
use super::unbind::unbind;
use super::verify_unchanged::PlannedState;
use super::{foreign_fields, messages, scale_from_zero, shared};
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::deletion::{
    Deletion, NextPhase, QueueRemoval, ScalingRemoval, ServiceAccountRemoval, WorkloadRemoval,
};
use crate::reconcile::plan::scaling::ScalingTeardown;
use crate::reconcile::plan::steps::ScaleFromZero;
use crate::record::{ActorRecord, Metadata};
use crate::telemetry::events::EventReason;

/// Executes the plan of an actor being deleted.
pub(super) async fn delete(
    context: &Context,
    actor: &ActorRecord,
    plan: Box<Deletion>,
) -> Result<Outcome, Error> {
    let steps = &plan.steps;
    remove_scaling(context, actor, &plan).await?;
    let mut deleted = deleted_kinds(&steps.scaling);
    if let Some(scale_up) = &steps.scale_from_zero {
        scale_up_target(context, actor, scale_up).await?;
    }
    if let Some(outcome) = unbind(context, actor, &steps.unbind, &plan.unbind_params).await? {
        return Ok(outcome.with_deleted(deleted));
    }
    let namespace = &actor.metadata.key.namespace;
    for workload in &plan.unbind_params.actor_annotated {
        foreign_fields::remove_actor_annotation(context, namespace, workload).await?;
    }
    deleted.extend(remove_workloads(context, actor, &steps.workloads).await?);
    remove_service_account(context, actor, &plan).await?;
    match &steps.next {
        NextPhase::Finalized => Ok(Outcome::Finalized),
        NextPhase::Wait(wait) => Ok(Outcome::Deleting {
            fault: None,
            deleted,
            requeue: wait.map_or(Requeue::AwaitChange, Requeue::After),
            changed_target: false,
        }),
        NextPhase::FinalStep { queues } => {
            if let Some(outcome) = remove_shared(context, actor, &plan, queues).await? {
                return Ok(outcome);
            }
            if let Some(patch) = plan.finalizer_removal {
                patch_finalizers(context, patch).await?;
            }
            Ok(Outcome::Finalized)
        }
    }
}

async fn remove_scaling(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
) -> Result<(), Error> {
    match &plan.steps.scaling {
        ScalingRemoval::Delete(teardown) => delete_scaling(context, plan, teardown).await,
        ScalingRemoval::Orphan => orphan_scaling(context, &actor.metadata.uid, plan).await,
    }
}

async fn scale_up_target(
    context: &Context,
    actor: &ActorRecord,
    step: &ScaleFromZero,
) -> Result<(), Error> {
    let namespace = &actor.metadata.key.namespace;
    if let Err(failed) = scale_from_zero::scale_up(context, namespace, step).await {
        // A target that we may not scale up must not block the deletion.
        let fault = failed.fault()?;
        warn!(object = %step.object, fault.message, "cannot scale up the target");
    }
    Ok(())
}

/// Returns the kinds of the deleted workloads.
async fn remove_workloads(
    context: &Context,
    actor: &ActorRecord,
    removals: &[WorkloadRemoval],
) -> Result<Vec<&'static str>, Error> {
    let workloads = &context.workloads;
    let mut deleted = Vec::new();
    for removal in removals {
        match removal {
            WorkloadRemoval::Adopt(kind, object) => {
                let created = workloads.create(*kind, &actor.metadata.key, object).await;
                created.map_err(Error::Api)?;
            }
            WorkloadRemoval::Delete(workload) => {
                workloads.delete_unchanged(workload).await?;
                deleted.push(workload.kind.name());
            }
            WorkloadRemoval::Orphan(workload) => {
                workloads.orphan(workload, &actor.metadata.uid).await?;
            }
        }
    }
    Ok(deleted)
}

async fn remove_service_account(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
) -> Result<(), Error> {
    let Some(account) = &plan.service_account else {
        return Ok(());
    };
    let accounts = &context.service_accounts;
    let Metadata { key, uid, .. } = &account.metadata;
    match plan.steps.service_account {
        ServiceAccountRemoval::Keep => {}
        ServiceAccountRemoval::Delete => accounts.delete_unchanged(&account.metadata).await?,
        ServiceAccountRemoval::Orphan => accounts.orphan(key, uid, &actor.metadata.uid).await?,
    }
    Ok(())
}

/// Removes what the actor's pods may use until they terminate: its queues and the namespace's shared objects. Returns
/// what prevents that.
async fn remove_shared(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
    queues: &[QueueRemoval],
) -> Result<Option<Outcome>, Error> {
    let planned = PlannedState::new(context, actor, plan.known_pods.as_deref());
    planned.verify().await?;
    let blocked = delete_queues(context, actor, plan, queues, &planned).await?;
    if blocked.is_some() {
        return Ok(blocked);
    }
    shared::clean_up(context, actor, plan).await?;
    if plan.orphans {
        let text = "the queue and every object of this actor are kept, because it was deleted with deletionPolicy or \
                    propagation policy Orphan";
        context.events.publish(actor, EventReason::Orphaned, text);
    }
    if let Some(kept) = &plan.kept_queues {
        messages::report_kept_queues(context, actor, plan.queue_policy, kept);
    }
    Ok(None)
}

async fn delete_scaling(
    context: &Context,
    plan: &Deletion,
    teardown: &ScalingTeardown,
) -> Result<(), Error> {
    if let (ChildStep::Delete(_), Some(existing)) = (&teardown.scaled_object, &plan.scaled_object) {
        let scaled_objects = &context.scaled_objects;
        scaled_objects.delete_unchanged(&existing.metadata).await?;
    }
    if let (ChildStep::Delete(_), Some(existing)) = (
        &teardown.trigger_authentication,
        &plan.trigger_authentication,
    ) {
        let authentications = &context.trigger_authentications;
        authentications.delete_unchanged(&existing.metadata).await?;
    }
    Ok(())
}

/// Removes our owner reference from the scaling objects, which outlive the actor (FW-23).
async fn orphan_scaling(context: &Context, actor: &str, plan: &Deletion) -> Result<(), Error> {
    if let Some(existing) = &plan.scaled_object {
        let key = &existing.metadata.key;
        let uid = &existing.metadata.uid;
        context.scaled_objects.orphan(key, uid, actor).await?;
    }
    if let Some(existing) = &plan.trigger_authentication {
        let key = &existing.metadata.key;
        let uid = &existing.metadata.uid;
        let authentications = &context.trigger_authentications;
        authentications.orphan(key, uid, actor).await?;
    }
    Ok(())
}

fn deleted_kinds(scaling: &ScalingRemoval) -> Vec<&'static str> {
    let ScalingRemoval::Delete(teardown) = scaling else {
        return Vec::new();
    };
    let steps = [
        ("ScaledObject", &teardown.scaled_object),
        ("TriggerAuthentication", &teardown.trigger_authentication),
    ];
    let deleted = steps
        .into_iter()
        .filter(|(_, step)| matches!(step, ChildStep::Delete(_)));
    deleted.map(|(kind, _)| kind).collect()
}
