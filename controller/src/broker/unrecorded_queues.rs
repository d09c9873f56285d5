//! Queues that this process has created and that no status names yet. If that status is lost, or the actor changes its
//! transport before its queue is verified, they would otherwise be left at the broker for good (QUE-13).

use std::collections::HashMap;

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use parking_lot::Mutex;

use crate::record::Key;

/// The queues, by actor.
#[derive(Debug, Default)]
pub struct UnrecordedQueues(Mutex<HashMap<Key, Vec<QueueStatus>>>);

impl UnrecordedQueues {
    /// Adds a queue before it is created.
    pub fn add(&self, actor: &Key, queue: &QueueStatus) {
        let mut all = self.0.lock();
        let queues = all.entry(actor.clone()).or_default();
        if !queues.iter().any(|it| it.is_same_queue(queue)) {
            queues.push(queue.clone());
        }
    }

    /// The queues of an actor.
    pub fn of(&self, actor: &Key) -> Vec<QueueStatus> {
        self.0.lock().get(actor).cloned().unwrap_or_default()
    }

    /// Drops those that `status` names, which was stored.
    pub fn recorded(&self, actor: &Key, status: &AsyncActorStatus) {
        let mut all = self.0.lock();
        let Some(queues) = all.get_mut(actor) else {
            return;
        };
        let named = |queue: &QueueStatus| {
            let mut all = status.queue.iter().chain(&status.retired_queues);
            all.any(|it| it.is_same_queue(queue))
        };
        queues.retain(|queue| !named(queue));
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
    use asya_shared::api::{AsyncActorStatus, QueueStatus};

    use super::UnrecordedQueues;
    use crate::record::Key;

    fn queue(transport: &str) -> QueueStatus {
        QueueStatus {
            name: "asya-a".to_owned(),
            transport: transport.to_owned(),
            ..QueueStatus::default()
        }
    }

    /// QUE-13
    #[test]
    fn created_queue_is_known_until_a_status_names_it() {
        let (unrecorded, key) = (UnrecordedQueues::default(), Key::new("team", "a"));
        for transport in ["east", "west", "north", "west"] {
            unrecorded.add(&key, &queue(transport));
        }
        unrecorded.recorded(
            &key,
            &AsyncActorStatus {
                queue: Some(queue("north")),
                retired_queues: vec![queue("east"), queue("south")],
                ..AsyncActorStatus::default()
            },
        );
        assert_eq!(unrecorded.of(&key), [queue("west")]);
        assert_eq!(unrecorded.of(&Key::new("team", "b")), []);
        unrecorded.forget(&key);
        assert_eq!(unrecorded.of(&key), []);
    }
}
