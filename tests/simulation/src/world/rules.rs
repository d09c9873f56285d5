//! What must never happen, checked when the controller writes.

use serde_json::Value;

use super::World;
use super::pods::queue_of;
use crate::api_server::resources;
use crate::api_server::store::Id;
use crate::process::Process;

/// Marks objects that the controller must leave alone.
pub const FOREIGN: &str = "example.com/foreign";

impl World {
    /// Objects of others stay as they are.
    pub(super) fn check_foreign(&self, process: &Process, id: &Id) {
        let object = self.server.lock().store.get(id);
        if object.is_some_and(|it| it["metadata"]["annotations"][FOREIGN] == "true") {
            self.violation(format!(
                "{} changes {id}, which is not the operator's",
                process.name
            ));
        }
    }

    /// No queue goes that its policy keeps, that pods receive from, or that a living actor uses.
    pub(super) fn check_queue_deletion(
        &self,
        process: &Process,
        host: &str,
        (queue, query): (&str, &str),
    ) {
        let brokers = self.brokers.lock();
        let Some((messages, owner)) = brokers
            .get(host)
            .and_then(|broker| Some((broker.queues.get(queue)?.messages, broker.owner_of(queue))))
        else {
            return;
        };
        drop(brokers);
        let fail = |why: &str| {
            self.violation(format!(
                "{} deletes queue {queue} at {host}, {why}",
                process.name
            ));
        };
        let Some((namespace, name)) = owner else {
            return fail("which is nobody's");
        };
        let server = self.server.lock();
        let actor = server
            .store
            .get(&Id::new(&resources::ACTORS, &namespace, &name));
        let mut pods = server.store.all(&resources::PODS).map(|(_, pod)| pod);
        let receives = |pod: &Value| {
            let metadata = &pod["metadata"];
            metadata["namespace"] == *namespace
                && metadata["deletionTimestamp"].is_null()
                && queue_of(pod).is_some_and(|(at, from)| (&*at, &*from) == (host, queue))
        };
        let is_used = pods.any(|pod| receives(pod));
        drop(pods);
        drop(server);
        if is_used {
            fail("from which a pod receives");
        }
        let Some(actor) = actor else {
            return fail("although its actor is gone");
        };
        let is_deleting = actor["metadata"]["deletionTimestamp"].is_string();
        if !is_deleting && actor["spec"]["transport"] == host {
            fail("which its actor uses");
        }
        let policy = actor["spec"]["queue"]["deletionPolicy"]
            .as_str()
            .unwrap_or("Delete");
        let keeps_messages = !is_deleting || policy != "Delete";
        if policy == "Retain" {
            fail("which its policy retains");
        } else if keeps_messages && messages > 0 && !query.contains("if-empty") {
            fail(&format!(
                "which holds {messages} messages, with policy {policy}"
            ));
        }
    }
}
