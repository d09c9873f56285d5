//! Takes down what we made: workload, queue, script, and last our finalizer.

use asya_shared::api::QueueStatus;
use asya_shared::transport::sqs::Owner;
use kube::Api;

use super::Outcome;
use super::finalizer::remove_finalizer;
use crate::events::Note;
use crate::queue::{BrokerError, Emptied, Seen as QueueSeen, Standing};
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::deletion::{Delete, Then, WorkloadRemoval};
use crate::reconcile::{Context, Error, Fault, Reason, Retry};
use crate::record::{ActorRecord, Key, Record, Seen};

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
    if let Some(queue) = queue {
        match delete_queue(context, observed, &queue).await? {
            Ok(Emptied::Gone | Emptied::Kept) => {}
            // Its messages are counted late: until it is known to be empty it stays.
            Ok(Emptied::Later(wait)) => {
                let retry = Retry::After(wait);
                return Ok(Outcome::Deleting { fault: None, retry });
            }
            Err(fault) => {
                let (text, retry) = (fault.message.clone(), fault.retry);
                let note = Note::QueueDeletionFailed;
                context.events.tell(&observed.actor, note, text);
                let fault = Some(fault);
                return Ok(Outcome::Deleting { fault, retry });
            }
        }
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
) -> Result<Result<Emptied, Fault>, Error> {
    let failed = |message: String, retry| Fault {
        reason: Reason::QueueDeletionFailed,
        message: format!("queue {} cannot be deleted: {message}", queue.name),
        retry,
    };
    let transport = match context.installation.transports.usable(&queue.transport) {
        Ok(transport) => transport,
        Err(unusable) => {
            let hint = "configure it again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the queue behind";
            return Ok(Err(failed(format!("{unusable}; {hint}"), Retry::Slowly)));
        }
    };
    let known = observed.previous.queue.is_some();
    let key = observed.key();
    let client = context.brokers.client(transport, &key.namespace);
    let owner = Owner {
        namespace: key.namespace.to_string(),
        actor: key.name.to_string(),
    };
    let removal = async {
        // A queue that status does not name was ours only if it is what we would have made.
        if !known && let Ok(desired) = &observed.desired {
            match client.observe(&desired.queue_of(&observed.actor)).await {
                Ok(QueueSeen {
                    standing: Standing::Serves(_) | Standing::Drifted,
                    ..
                }) => {}
                Ok(_) | Err(BrokerError::Conflict(_)) => return Ok(Emptied::Gone),
                Err(error) => return Err(error),
            }
        }
        client.delete(&queue.name, &owner).await?;
        match own_dead_letters(observed) {
            Some(dlq) => client.delete_if_empty(dlq, &owner).await,
            None => Ok(Emptied::Gone),
        }
    };
    match removal.await {
        Ok(emptied) => Ok(Ok(emptied)),
        Err(BrokerError::Busy(text)) => Err(Error::Busy(text)),
        Err(error) => Ok(Err(failed(error.to_string(), Retry::Soon))),
    }
}

/// A dead letter queue that others share is nobody's to delete (QUE-14).
fn own_dead_letters(observed: &Observed) -> Option<&str> {
    let desired = observed.desired.as_ref().ok()?;
    let shared = desired.transport.queues().dlq.is_shared();
    desired.names.dlq.as_deref().filter(|_| !shared)
}

/// The runtime script goes with the last actor of its namespace (RUN-2).
async fn release_namespace(context: &Context, observed: &Observed) -> Result<(), Error> {
    let namespace = &observed.key().namespace;
    let actors = &context.stores.actors;
    // One that goes, too, does not count: of several at once none would be the last.
    let stays = |key: &Key| {
        let actor = actors.get(key).filter(|_| key != observed.key());
        actor.is_some_and(|actor| !actor.metadata.deleting)
    };
    let others = actors.keys_in(namespace).iter().any(stays);
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
