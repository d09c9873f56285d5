//! Connects the queue health check to actors: selects the queues to check, and enqueues the actors of those that need
//! another look (QUE-20 to QUE-22).

use std::collections::BTreeMap;

use asya_shared::api::QueueDeletionPolicy;
use asya_shared::transport::ActorQueue;

use super::operator::Operator;
use crate::broker::health::{CheckedQueue, QueueSource, TransportQueues};
use crate::broker::rechecks::RecheckReason;
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::{ActorRecord, Key};

impl QueueSource for Operator {
    fn queues(&self) -> Vec<TransportQueues> {
        let Context {
            installation,
            stores,
            queue_claims,
            ..
        } = &*self.context;
        if !installation.queues_managed {
            return Vec::new();
        }
        let mut actors = Vec::new();
        stores.actors.each(|actor| actors.push(actor.clone()));
        // A check tags only some queues; which ones must not depend on a map's order.
        actors.sort_by(|one, other| one.metadata.key.cmp(&other.metadata.key));
        let mut by_transport: BTreeMap<String, TransportQueues> = BTreeMap::new();
        for actor in actors {
            if queue_claims.other_holder(&actor.metadata.key).is_some() {
                continue;
            }
            let Some((transport, checked)) = self.verified_queue(&actor) else {
                continue;
            };
            let Ok(transport) = installation.transports.usable(&transport) else {
                continue;
            };
            let entry = by_transport.entry(transport.name.clone());
            let entry = entry.or_insert_with(|| TransportQueues {
                transport: transport.clone(),
                queues: Vec::new(),
            });
            entry.queues.push(checked);
        }
        by_transport.into_values().collect()
    }

    fn enqueue_recheck(&self, actor: &Key, reason: &RecheckReason) {
        self.context.queue_rechecks.request(actor, reason.clone());
        self.enqueue(WorkItem::Actor(actor.clone()));
    }

    fn enqueue_missing(&self, actor: &Key) {
        // Messages are counted often: a queue that cannot be recreated must not cause a reconcile each time.
        if self.context.queue_rechecks.reason(actor) != Some(RecheckReason::Missing) {
            self.enqueue_recheck(actor, &RecheckReason::Missing);
        }
    }

    fn enqueue_depth_change(&self, actor: &Key) {
        self.enqueue(WorkItem::Actor(actor.clone()));
    }
}

impl Operator {
    /// The verified queue of an actor that is not being deleted.
    fn verified_queue(&self, actor: &ActorRecord) -> Option<(String, CheckedQueue)> {
        if actor.metadata.deleting {
            return None;
        }
        let reported = actor.status_view.queue.as_ref()?;
        let transports = &self.context.installation.transports;
        let transport = transports.usable(actor.transport.as_deref()?).ok()?;
        let Key { namespace, name } = &actor.metadata.key;
        let names = transport.names_of(namespace, name);
        // If the status does not name the desired queue, a reconcile is due first.
        if (&*reported.transport, &*reported.name) != (&*transport.name, &*names.queue) {
            return None;
        }
        let queue = ActorQueue {
            names,
            namespace: namespace.to_string(),
            actor: name.to_string(),
            uid: actor.metadata.uid.to_string(),
            timeout: actor.timeout.as_ref()?.effective(),
            adopts: actor.annotations.adopts().map(str::to_owned),
        };
        Some((
            transport.name.clone(),
            CheckedQueue {
                queue,
                counts_often: counts_often(actor),
                is_paused: actor.annotations.paused,
            },
        ))
    }
}

/// Whether the messages of the actor's queue are also counted between health checks (QUE-20).
fn counts_often(actor: &ActorRecord) -> bool {
    let status = &actor.status_view;
    // An actor that was scaled to zero must not keep the count from before its queue was empty.
    let is_in_use = status.desired_replicas > 0 || status.reports_messages();
    // Whether it may be deleted depends on the count in its status.
    is_in_use || actor.queue_policy == QueueDeletionPolicy::DeleteIfEmpty
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::counts_often;
    use crate::reconcile::tests::fixtures::{actor, observed};

    /// QUE-20
    #[test]
    fn messages_are_counted_while_pods_or_reported_messages_exist() {
        for (status, policy, expected) in [
            (json!({}), "Delete", false),
            (json!({"desiredReplicas": 1}), "Delete", true),
            (
                json!({"desiredReplicas": 0, "queuedMessages": 1}),
                "Delete",
                true,
            ),
            (json!({"processingMessages": 1}), "Delete", true),
            (
                json!({"queuedMessages": 0, "processingMessages": null}),
                "Delete",
                false,
            ),
            (json!({}), "DeleteIfEmpty", true),
        ] {
            let spec = json!({"transport": "mq", "queue": {"deletionPolicy": policy}});
            let actor = observed(&actor(&json!({}), &spec, &status)).actor;
            assert_eq!(counts_often(&actor), expected, "{status} {policy}");
        }
    }
}
