//! Tears down what we created: the scaling objects, the workload, its `ServiceAccount` and queue, the shared objects,
//! and finally our finalizer.

use tracing::warn;

use super::finalizer::patch_finalizers;
use super::remove_queue::delete_queues;
use super::unbind::unbind;
use super::verify_unchanged::PlannedState;
use super::{foreign_fields, messages, scale_from_zero, scaling, shared};
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::deletion::{
    Deletion, NextPhase, ScalingRemoval, ServiceAccountRemoval, WorkloadRemoval,
};
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// Executes the plan of an actor being deleted.
pub(super) async fn delete(
    context: &Context,
    actor: &ActorRecord,
    plan: Box<Deletion>,
) -> Result<Outcome, Error> {
    let namespace = &actor.metadata.key.namespace;
    let uid = &*actor.metadata.uid;
    let steps = &plan.steps;
    match &steps.scaling {
        ScalingRemoval::Delete(_) => scaling::remove(context, &plan.scaling_children).await?,
        ScalingRemoval::Orphan => orphan_scaling(context, uid, &plan).await?,
    }
    let mut deleted = deleted_kinds(&steps.scaling);
    if let Some(scale_up) = &steps.scale_from_zero
        && let Err(failed) = scale_from_zero::scale_up(context, namespace, scale_up).await
    {
        // A target that we may not scale up must not block the deletion.
        let fault = failed.fault()?;
        warn!(object = %scale_up.object, fault.message, "cannot scale up the target");
    }
    if let Some(outcome) = unbind(context, actor, &steps.unbind, &plan.unbind_params).await? {
        return Ok(outcome.with_deleted(deleted));
    }
    for workload in &plan.unbind_params.actor_annotated {
        foreign_fields::remove_actor_annotation(context, namespace, workload).await?;
    }
    for removal in &steps.workloads {
        match removal {
            WorkloadRemoval::Delete(workload) => {
                context.workloads.delete(workload).await?;
                deleted.push(workload.kind.name());
            }
            WorkloadRemoval::Orphan(workload) => context.workloads.orphan(workload, uid).await?,
        }
    }
    if let Some(account) = &plan.service_account {
        let accounts = &context.service_accounts;
        let metadata = &account.metadata;
        match steps.service_account {
            ServiceAccountRemoval::Keep => {}
            ServiceAccountRemoval::Delete => accounts.delete(&metadata.key, &metadata.uid).await?,
            ServiceAccountRemoval::Orphan => {
                accounts.orphan(&metadata.key, &metadata.uid, uid).await?;
            }
        }
    }
    let queues = match &steps.next {
        NextPhase::Finalized => return Ok(Outcome::Finalized),
        NextPhase::Wait(wait) => {
            let requeue = wait.map_or(Requeue::AwaitChange, Requeue::After);
            return Ok(Outcome::Deleting {
                fault: None,
                deleted,
                requeue,
                changed_target: false,
            });
        }
        NextPhase::FinalStep { queues } => queues,
    };
    let planned = PlannedState::new(context, actor, plan.known_pods.as_deref());
    planned.verify().await?;
    if let Some(outcome) = delete_queues(context, actor, &plan, queues, &planned).await? {
        return Ok(outcome);
    }
    shared::clean_up(context, actor, &plan).await?;
    if plan.orphans {
        let text = "deletionPolicy: Orphan keeps the queue and every object of this actor";
        context.events.publish(actor, EventReason::Orphaned, text);
    }
    if let Some(kept) = &plan.kept_queues {
        messages::report_kept_queues(context, actor, plan.queue_policy, kept);
    }
    if let Some(patch) = plan.finalizer_removal {
        patch_finalizers(context, patch).await?;
    }
    Ok(Outcome::Finalized)
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
    let ScalingRemoval::Delete(removal) = scaling else {
        return Vec::new();
    };
    let steps = [
        ("ScaledObject", &removal.scaled_object),
        ("TriggerAuthentication", &removal.trigger_authentication),
    ];
    let deleted = steps
        .into_iter()
        .filter(|(_, step)| matches!(step, ChildStep::Delete(_)));
    deleted.map(|(kind, _)| kind).collect()
}
