//! Queues that this process has created or found, and that no status has named as verified yet. If that status is lost,
//! or the actor changes its transport before, they would otherwise be left at the broker for good (QUE-13). Their owner tag may be missing, because it is written after the queue.

use std::collections::HashMap;

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::transport::ActorQueue;
use parking_lot::Mutex;

use crate::record::Key;

/// The queues, by actor.
#[derive(Debug, Default)]
pub struct UnrecordedQueues(Mutex<HashMap<Key, Vec<Unrecorded>>>);

#[derive(Debug)]
struct Unrecorded {
    status: QueueStatus,
    created: ActorQueue,
}

impl UnrecordedQueues {
    /// Adds a queue, at the latest before it is created.
    pub fn add(&self, actor: &Key, status: QueueStatus, created: ActorQueue) {
        let mut all = self.0.lock();
        let queues = all.entry(actor.clone()).or_default();
        queues.retain(|it| !it.status.is_same_queue(&status));
        queues.push(Unrecorded { status, created });
    }

    /// The queues of an actor, as its status would name them.
    pub fn of(&self, actor: &Key) -> Vec<QueueStatus> {
        let all = self.0.lock();
        let queues = all.get(actor).into_iter().flatten();
        queues.map(|it| it.status.clone()).collect()
    }

    /// What was to be created as `queue`; `None` if a status named it as verified, or if it is not known here.
    pub fn created_as(&self, actor: &Key, queue: &QueueStatus) -> Option<ActorQueue> {
        let all = self.0.lock();
        let mut queues = all.get(actor)?.iter();
        let unrecorded = queues.find(|it| it.status.is_same_queue(queue))?;
        Some(unrecorded.created.clone())
    }

    /// Drops the queue that `status`, which was stored, names as verified.
    pub fn recorded(&self, actor: &Key, status: &AsyncActorStatus) {
        if let Some(verified) = &status.queue {
            self.remove(actor, verified);
        }
    }

    /// Drops a queue that is deleted, or not the actor's.
    pub fn remove(&self, actor: &Key, queue: &QueueStatus) {
        let mut all = self.0.lock();
        let Some(queues) = all.get_mut(actor) else {
            return;
        };
        queues.retain(|it| !it.status.is_same_queue(queue));
        if queues.is_empty() {
            all.remove(actor);
        }
    }

    /// Drops all queues of an actor.
    pub fn forget(&self, actor: &Key) {
        self.0.lock().remove(actor);
    }
}

#[cfg(test)]
mod tests {
    use asya_shared::api::{AsyncActorStatus, EffectiveTimeout, QueueStatus};
    use asya_shared::config::QueueNames;
    use asya_shared::transport::ActorQueue;

    use super::UnrecordedQueues;
    use crate::record::Key;

    fn queue(transport: &str) -> QueueStatus {
        QueueStatus {
            name: "asya-a".to_owned(),
            transport: transport.to_owned(),
            ..QueueStatus::default()
        }
    }

    fn created(transport: &str) -> ActorQueue {
        ActorQueue {
            names: QueueNames {
                queue: transport.to_owned(),
                dlq: None,
                actor: "a".to_owned(),
                happy_end: "happy-end".to_owned(),
                error_end: "error-end".to_owned(),
            },
            namespace: "team".to_owned(),
            actor: "a".to_owned(),
            uid: "uid".to_owned(),
            timeout: EffectiveTimeout {
                processing: None,
                graceful_shutdown: 30,
                progress: None,
            },
            adopts: None,
        }
    }

    /// QUE-13
    #[test]
    fn created_queue_is_known_until_a_status_names_it() {
        let (unrecorded, key) = (UnrecordedQueues::default(), Key::new("team", "a"));
        for transport in ["east", "west", "north", "west"] {
            unrecorded.add(&key, queue(transport), created(transport));
        }
        unrecorded.recorded(
            &key,
            &AsyncActorStatus {
                queue: Some(queue("north")),
                retired_queues: vec![queue("east"), queue("south")],
                ..AsyncActorStatus::default()
            },
        );
        // A retired queue may lack its owner tag until it is deleted.
        assert_eq!(unrecorded.of(&key), [queue("east"), queue("west")]);
        assert_eq!(unrecorded.of(&Key::new("team", "b")), []);
        assert_eq!(
            unrecorded.created_as(&key, &queue("west")),
            Some(created("west"))
        );
        assert_eq!(unrecorded.created_as(&key, &queue("north")), None);
        unrecorded.remove(&key, &queue("east"));
        assert_eq!(unrecorded.of(&key), [queue("west")]);
        unrecorded.forget(&key);
        assert_eq!(unrecorded.of(&key), []);
    }
}
