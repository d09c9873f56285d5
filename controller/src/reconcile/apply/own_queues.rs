//! An actor's own queues on one transport, as they are deleted.

use std::sync::Arc;

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;
use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;

use crate::broker::{BrokerError, Emptied, QueueClient};
use crate::context::Context;
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// An actor's own queues on one transport.
pub(super) struct OwnQueues<'a> {
    pub(super) context: &'a Context,
    pub(super) actor: &'a ActorRecord,
    pub(super) client: Arc<dyn QueueClient>,
    /// The owner as the broker records it on the actor's queues.
    pub(super) owner: Owner,
    transport: &'a Transport,
}

impl<'a> OwnQueues<'a> {
    pub(super) fn new(
        context: &'a Context,
        actor: &'a ActorRecord,
        transport: &'a Transport,
    ) -> Self {
        let key = &actor.metadata.key;
        Self {
            context,
            actor,
            owner: Owner {
                namespace: key.namespace.to_string(),
                actor: key.name.to_string(),
                uid: actor.metadata.uid.to_string(),
            },
            client: context.brokers.client(transport, &key.namespace),
            transport,
        }
    }

    pub(super) async fn delete_if_empty(&self, queue: &str) -> Result<Emptied, BrokerError> {
        self.client.delete_if_empty(queue, &self.owner).await
    }

    /// Deletes a queue's own dead letter queues, including those of earlier configurations. One that holds messages or
    /// has receivers is kept and reported by an Event (QUE-14). Returns `Later` while it is not known whether one is
    /// empty.
    pub(super) async fn delete_dead_letters(
        &self,
        queue: &QueueStatus,
    ) -> Result<Emptied, BrokerError> {
        let transport = &self.transport.name;
        let mut later = None;
        for name in self.dead_letters_of(queue) {
            match self.delete_if_empty(&name).await? {
                Emptied::Gone => {}
                Emptied::Later(wait) => later = later.max(Some(wait)),
                Emptied::Left(not_ours) => self.announce_left(&name, &not_ours),
                Emptied::Kept => {
                    let text = format!(
                        "dead letter queue {name} on transport {transport} holds messages or has receivers: it stays; \
                         delete it at the broker when they are dealt with"
                    );
                    let events = &self.context.events;
                    events.tell(self.actor, EventReason::DeadLettersKept, &text);
                }
            }
        }
        Ok(later.map_or(Emptied::Gone, Emptied::Later))
    }

    /// Records an Event that says why a queue outlives its actor (QUE-34).
    pub(super) fn announce_left(&self, queue: &str, not_ours: &NotOurs) {
        let transport = &self.transport.name;
        let text = format!("queue {queue} on transport {transport} stays: {not_ours}");
        let events = &self.context.events;
        events.tell(self.actor, EventReason::QueueLeft, &text);
    }

    /// The queue's own dead letter queues, without shared ones and without names that belong to another actor's queue.
    /// The owner is looked up as late as possible: an actor may have claimed the name since this one was observed
    /// (QUE-14).
    fn dead_letters_of(&self, queue: &QueueStatus) -> Vec<String> {
        let Self {
            context, transport, ..
        } = self;
        let mut all = transport.all_own_dead_letters(&queue.name, &queue.dead_letters);
        let transports = &context.installation.transports;
        all.retain(|name| {
            let (place, key) = ((&*transport.name, &**name), &self.actor.metadata.key);
            context.claims.owner_of(transports, place, key).is_none()
        });
        all
    }
}
