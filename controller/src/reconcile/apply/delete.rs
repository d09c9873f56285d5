//! Takes down what we made: workload, queue, script, and last our finalizer.

use asya_shared::api::QueueStatus;
use kube::Api;

use super::Outcome;
use super::finalizer::remove_finalizer;
use crate::events::Note;
use crate::queue::{BrokerError, Standing};
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::{Delete, Then, WorkloadRemoval};
use crate::reconcile::{Context, Error, Fault, Reason, Retry};
use crate::record::{ActorRecord, Record, Seen};

/// Runs the plan of an actor that goes.
pub(super) async fn delete(
    context: &Context,
    observed: &Observed,
    plan: Delete,
) -> Result<Outcome, Error> {
    for removal in &plan.workloads {
        match removal {
            WorkloadRemoval::Delete(workload) => context.workloads.delete(workload).await?,
            WorkloadRemoval::Orphan(workload) => {
                context
                    .workloads
                    .orphan(workload, &observed.actor.metadata.uid)
                    .await?;
            }
        }
    }
    let queue = match plan.then {
        Then::Gone => return Ok(Outcome::Gone),
        Then::Wait(wait) => {
            let retry = wait.map_or(Retry::OnChange, Retry::After);
            return Ok(Outcome::Deleting { fault: None, retry });
        }
        Then::Finish { queue } => queue,
    };
    confirm_deletion(context, observed).await?;
    if let Some(queue) = queue
        && let Err(fault) = delete_queue(context, observed, &queue).await
    {
        context.events.tell(
            &observed.actor,
            Note::QueueDeletionFailed,
            fault.message.clone(),
        );
        return Ok(Outcome::Deleting {
            retry: fault.retry,
            fault: Some(fault),
        });
    }
    release_namespace(context, observed).await?;
    remove_finalizer(context, &observed.actor).await?;
    Ok(Outcome::Gone)
}

/// A queue cannot be brought back: that its actor still goes is read from the API server itself, not
/// from a store which may be behind.
async fn confirm_deletion(context: &Context, observed: &Observed) -> Result<(), Error> {
    let live = actors(context, observed)
        .get_opt(&observed.key().name)
        .await
        .map_err(Error::Api)?;
    let confirmed = live.is_some_and(|seen| {
        let metadata = seen.record.metadata();
        metadata.deleting && metadata.uid == observed.actor.metadata.uid
    });
    if confirmed {
        Ok(())
    } else {
        Err(Error::Stale("the actor"))
    }
}

async fn delete_queue(
    context: &Context,
    observed: &Observed,
    queue: &QueueStatus,
) -> Result<(), Fault> {
    let failed = |message: String, retry| Fault {
        reason: Reason::QueueDeletionFailed,
        message: format!("queue {} cannot be deleted: {message}", queue.name),
        retry,
    };
    let transport = context.installation.transports.usable(&queue.transport).map_err(|unusable| {
        let hint = "configure it again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the queue behind";
        failed(format!("{unusable}; {hint}"), Retry::Slowly)
    })?;
    let known = observed.previous.queue.is_some();
    let removal = async {
        let client = context
            .brokers
            .client(transport, &observed.key().namespace)
            .await?;
        // A queue that status does not name was ours only if it is what we would have made.
        if !known && let Ok(desired) = &observed.desired {
            match client.observe(&desired.names).await? {
                Standing::Absent | Standing::Differs { .. } => return Ok(()),
                Standing::Serves => {}
            }
        }
        client.delete(&queue.name).await
    };
    removal.await.map_err(|error: BrokerError| {
        if matches!(error, BrokerError::AuthFailed(_)) {
            context.brokers.forget_credentials(transport);
        }
        failed(error.to_string(), Retry::Soon)
    })
}

/// The runtime script goes with the last actor of its namespace (RUN-2).
async fn release_namespace(context: &Context, observed: &Observed) -> Result<(), Error> {
    let namespace = &observed.key().namespace;
    let others = context
        .stores
        .actors
        .keys_in(namespace)
        .iter()
        .any(|key| key != observed.key());
    if observed.deletion.orphans {
        context
            .runtime
            .orphan(&context.stores.config_maps, namespace)
            .await
    } else if others {
        Ok(())
    } else {
        context
            .runtime
            .remove(&context.stores.config_maps, namespace)
            .await
    }
}

fn actors(context: &Context, observed: &Observed) -> Api<Seen<ActorRecord>> {
    Api::namespaced(context.client.clone(), &observed.key().namespace)
}
