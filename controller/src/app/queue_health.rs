//! Connects the queue health check to actors: which queues it checks, and what follows from its findings (QUE-20 to
//! QUE-22).

use std::collections::BTreeMap;

use asya_shared::api::QueueDeletionPolicy;
use asya_shared::transport::QueueOf;

use super::operator::Operator;
use crate::broker::health::{Actors, Checked, Finding, OnTransport};
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::{ActorRecord, Key};

impl Actors for Operator {
    fn queues(&self) -> Vec<OnTransport> {
        let Context {
            installation,
            stores,
            claims,
            ..
        } = &*self.context;
        if !installation.queues_managed {
            return Vec::new();
        }
        let mut actors = Vec::new();
        stores.actors.each(|actor| actors.push(actor.clone()));
        let mut by_transport: BTreeMap<String, OnTransport> = BTreeMap::new();
        for actor in actors {
            if claims.owner_before(&actor.metadata.key).is_some() {
                continue;
            }
            let Some((transport, checked)) = self.verified(&actor) else {
                continue;
            };
            let Ok(transport) = installation.transports.usable(&transport) else {
                continue;
            };
            let on = by_transport.entry(transport.name.clone());
            let on = on.or_insert_with(|| OnTransport {
                transport: transport.clone(),
                queues: Vec::new(),
            });
            on.queues.push(checked);
        }
        by_transport.into_values().collect()
    }

    fn verify_again(&self, actor: &Key, finding: &Finding) {
        self.context.queue_rechecks.raise(actor, finding.clone());
        self.queue.now(WorkItem::Actor(actor.clone()));
    }

    fn is_missing(&self, actor: &Key) {
        // Counts are frequent: a queue that cannot be recreated must not cause a reconcile with each of them.
        if self.context.queue_rechecks.about(actor) != Some(Finding::Vanished) {
            self.verify_again(actor, &Finding::Vanished);
        }
    }

    fn tell_depth(&self, actor: &Key) {
        self.queue.now(WorkItem::Actor(actor.clone()));
    }
}

impl Operator {
    /// The verified queue of an actor that is not being deleted.
    fn verified(&self, actor: &ActorRecord) -> Option<(String, Checked)> {
        if actor.metadata.deleting {
            return None;
        }
        let told = actor.told.queue.as_ref()?;
        let transports = &self.context.installation.transports;
        let transport = transports.usable(actor.transport.as_deref()?).ok()?;
        let Key { namespace, name } = &actor.metadata.key;
        let names = transport.names_of(namespace, name);
        // If status does not name the desired queue, a reconcile comes first.
        if (&*told.transport, &*told.name) != (&*transport.name, &*names.queue) {
            return None;
        }
        let queue = QueueOf {
            names,
            namespace: namespace.to_string(),
            actor: name.to_string(),
            uid: actor.metadata.uid.to_string(),
            timeout: actor.timeout.as_ref()?.in_force(),
            adopts: actor.annotations.adopts().map(str::to_owned),
        };
        Some((
            transport.name.clone(),
            Checked {
                queue,
                // Whether an actor with `DeleteIfEmpty` may be deleted depends on the message count in its status.
                at_work: actor.told.desired_replicas > 0
                    || actor.queue_policy == QueueDeletionPolicy::DeleteIfEmpty,
                kept: !actor.annotations.paused,
            },
        ))
    }
}
