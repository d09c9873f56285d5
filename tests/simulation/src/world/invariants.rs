//! Invariants, checked whenever the controller writes.

use serde_json::Value;

use super::World;
use super::pods::queue_of;
use crate::api_server::id::Id;
use crate::api_server::resources;
use crate::process::Process;

/// Marks objects that the controller must leave alone.
pub const FOREIGN: &str = "example.com/foreign";

/// A queue that is about to be deleted.
pub(super) struct QueueRemoval<'a> {
    /// Host or region of the broker.
    pub host: &'a str,
    /// Its name.
    pub queue: &'a str,
    /// The number of messages that would be lost, as far as the operator can know.
    pub messages: u64,
    /// Namespace and name of the actor that owns it, by the owner tag.
    pub owner: Option<(String, String)>,
}

impl World {
    /// Objects of others are not changed.
    pub(super) fn check_foreign(&self, process: &Process, id: &Id) {
        let object = self.server.lock().store.get(id);
        if object.is_some_and(|it| it["metadata"]["annotations"][FOREIGN] == "true") {
            self.violation(format!(
                "{} changes {id}, which is not the operator's",
                process.name
            ));
        }
    }

    /// No queue is deleted that its policy keeps, that pods receive from, or that a living actor uses.
    pub(super) fn check_queue_deletion(
        &self,
        process: &Process,
        host: &str,
        (queue, query): (&str, &str),
    ) {
        let brokers = self.brokers.lock();
        let broker = brokers.get(host);
        let found = broker.and_then(|it| Some((it.messages(queue)?, it.owner_of(queue))));
        drop(brokers);
        let Some((messages, owner)) = found else {
            return;
        };
        let keeps_messages = query.contains("if-empty");
        let removal = QueueRemoval {
            host,
            queue,
            messages: if keeps_messages { 0 } else { messages },
            owner,
        };
        self.check_queue_removal(process, removal);
    }

    /// The same check, for any broker.
    pub(super) fn check_queue_removal(&self, process: &Process, removal: QueueRemoval<'_>) {
        let QueueRemoval {
            host,
            queue,
            messages,
            owner,
        } = removal;
        let text = format!("deletes queue {queue} at {host}, ");
        let Some((namespace, name)) = owner else {
            // Its creation was interrupted before it was tagged, and it was never used.
            if messages > 0 {
                let name = &process.name;
                self.violation(format!(
                    "{name} {text}which is nobody's, with {messages} messages"
                ));
            }
            return;
        };
        let actor = Id::new(&resources::ACTORS, &namespace, &name);
        self.check_unchanged_since_read(process, &text, |objects| {
            let receives = |pod: &Value| {
                let metadata = &pod["metadata"];
                metadata["namespace"] == *namespace
                    && metadata["deletionTimestamp"].is_null()
                    && queue_of(pod).is_some_and(|(at, from)| (&*at, &*from) == (host, queue))
            };
            let mut pods = objects.all(&resources::PODS);
            let is_used = pods.any(|(_, pod)| receives(pod));
            is_used.then(|| "from which a pod receives".to_owned())
        });
        self.check_unchanged_since_read(process, &text, |objects| {
            let Some(actor) = objects.get(&actor) else {
                return Some("although its actor is gone".to_owned());
            };
            let is_deleting = actor["metadata"]["deletionTimestamp"].is_string();
            let policy = &actor["spec"]["queue"]["deletionPolicy"];
            let policy = policy.as_str().unwrap_or("Delete");
            let keeps_messages = !is_deleting || policy != "Delete";
            let uid = actor["metadata"]["uid"].as_str().unwrap_or_default();
            if is_deleting && self.orphaned.lock().contains(uid) {
                Some("which its user orphaned".to_owned())
            } else if !is_deleting && actor["spec"]["transport"] == host {
                Some("which its actor uses".to_owned())
            } else if policy == "Retain" {
                Some("which its policy retains".to_owned())
            } else if keeps_messages && messages > 0 {
                Some(format!(
                    "which holds {messages} messages, with policy {policy}"
                ))
            } else {
                None
            }
        });
    }
}
