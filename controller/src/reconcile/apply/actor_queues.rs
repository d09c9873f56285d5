//! Deletion of an actor's queues on one transport.
//!
//! Calls and Events are chosen here, because only the broker's response to one call determines the next. The holder of
//! a dead letter queue's name is looked up here, too: an actor may have claimed it since this reconcile was planned
//! (QUE-14).

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::DeletionRefusal;
use asya_shared::transport::ownership::QueueOwner;

use crate::broker::{BrokerError, DeleteIfEmptyOutcome, DeletionGuard, QueueClient, Untagged};
use crate::context::Context;
use crate::reconcile::plan::queue_removal::{is_removable, is_untagged};
use crate::reconcile::plan::retired::RetiredRemoval;
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

pub(super) struct ActorQueues<'a> {
    pub(super) context: &'a Context,
    pub(super) actor: &'a ActorRecord,
    pub(super) client: Arc<dyn QueueClient>,
    /// The owner as the broker records it on the actor's queues.
    pub(super) owner: QueueOwner,
    transport: &'a Transport,
    pub(super) guard: &'a dyn DeletionGuard,
}

impl<'a> ActorQueues<'a> {
    pub(super) fn new(
        context: &'a Context,
        actor: &'a ActorRecord,
        transport: &'a Transport,
        guard: &'a dyn DeletionGuard,
    ) -> Self {
        let key = &actor.metadata.key;
        Self {
            context,
            actor,
            owner: QueueOwner {
                namespace: key.namespace.to_string(),
                actor: key.name.to_string(),
                uid: actor.metadata.uid.to_string(),
            },
            client: context.brokers.client(transport, &key.namespace),
            transport,
            guard,
        }
    }

    pub(super) async fn delete_if_empty(
        &self,
        queue: &str,
        untagged: Untagged,
    ) -> Result<DeleteIfEmptyOutcome, BrokerError> {
        let generation = self.actor.generation;
        self.client
            .delete_if_empty(queue, &self.owner, untagged, generation, self.guard)
            .await
    }

    /// Deletes an empty retired queue together with its dead letter queues. `unrecorded` is the queue as it was to be
    /// created, set if no status names it as verified: its creation may have been interrupted before it was tagged.
    pub(super) async fn delete_retired(
        &self,
        queue: &QueueStatus,
        unrecorded: Option<&ActorQueue>,
    ) -> Result<RetiredRemoval, BrokerError> {
        let mut outcome = self.delete_if_empty(&queue.name, Untagged::Keep).await?;
        let tagged = !is_untagged(&outcome);
        if let Some(created) = unrecorded.filter(|_| !tagged)
            && is_removable(self.client.observe(created).await)?
        {
            outcome = self.delete_if_empty(&queue.name, Untagged::Delete).await?;
        }
        if outcome == DeleteIfEmptyOutcome::Deleted
            && let Some(wait) = self.delete_dead_letters(queue).await?
        {
            outcome = DeleteIfEmptyOutcome::Recheck(wait);
        }
        Ok(RetiredRemoval { outcome, tagged })
    }

    /// Deletes a queue's own dead letter queues, including those of earlier configurations. One that holds messages or
    /// has consumers is kept and reported by an Event (QUE-14). Returns when to check again, while it is uncertain
    /// whether one is empty.
    pub(super) async fn delete_dead_letters(
        &self,
        queue: &QueueStatus,
    ) -> Result<Option<Duration>, BrokerError> {
        let transport = &self.transport.name;
        let mut recheck = None;
        for name in self.dead_letters_of(queue) {
            match self.delete_if_empty(&name, Untagged::Keep).await? {
                DeleteIfEmptyOutcome::Deleted => {}
                DeleteIfEmptyOutcome::Recheck(wait) => recheck = recheck.max(Some(wait)),
                DeleteIfEmptyOutcome::NotOwned(refusal) => self.report_kept(&name, &refusal),
                DeleteIfEmptyOutcome::InUse => {
                    let text = format!(
                        "dead letter queue {name} on transport {transport} holds messages or has consumers, so it is \
                         kept; delete it at the broker once its messages have been handled"
                    );
                    let events = &self.context.events;
                    events.publish(self.actor, EventReason::DeadLettersKept, &text);
                }
            }
        }
        Ok(recheck)
    }

    /// Records an Event that gives the reason why a queue is kept (QUE-34).
    pub(super) fn report_kept(&self, queue: &str, refusal: &DeletionRefusal) {
        let transport = &self.transport.name;
        let text = format!("queue {queue} on transport {transport} is kept: {refusal}");
        let events = &self.context.events;
        events.publish(self.actor, EventReason::QueueLeft, &text);
    }

    /// The queue's own dead letter queues, without shared ones and names that belong to another actor's queue. Owners
    /// are looked up only now, because an actor may have claimed a name since this one was observed (QUE-14).
    pub(super) fn dead_letters_of(&self, queue: &QueueStatus) -> Vec<String> {
        let Self {
            context, transport, ..
        } = self;
        let mut all = transport.all_own_dead_letters(&queue.name, &queue.dead_letters);
        let transports = &context.installation.transports;
        all.retain(|name| {
            let address = (&*transport.name, &**name);
            let key = &self.actor.metadata.key;
            context
                .queue_claims
                .queue_name_holder_for(transports, address, key)
                .is_none()
        });
        all
    }
}
