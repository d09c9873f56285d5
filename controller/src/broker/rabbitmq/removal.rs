//! Deletes queues whose owner tag names the actor, and only those (RMQ-6, QUE-34).

use asya_shared::transport::ownership::QueueOwner;
use asya_shared::transport::rabbitmq::FoundQueue;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Rabbitmq, depth_of};
use crate::broker::limiter::Operation;
use crate::broker::{
    BrokerError, DeleteIfEmptyOutcome, DeleteOutcome, DeletionGuard, Depth, Untagged,
};

impl Rabbitmq {
    pub(super) async fn delete(
        &self,
        queue: &str,
        owner: &QueueOwner,
        guard: &dyn DeletionGuard,
    ) -> Result<DeleteOutcome, BrokerError> {
        if self.find(queue).await?.is_none() {
            return Ok(DeleteOutcome::Deleted);
        }
        if let Some(refusal) = self.deletion_refusal(queue, owner).await? {
            return Ok(DeleteOutcome::NotOwned(refusal));
        }
        let deadline = guard.confirm().await?;
        self.remove(queue, &[], deadline).await?;
        Ok(DeleteOutcome::Deleted)
    }

    /// Returns whether the queue is deleted: the broker may reject `conditions`.
    async fn remove(
        &self,
        queue: &str,
        conditions: &[&str],
        deadline: Instant,
    ) -> Result<bool, BrokerError> {
        let mut url = self.api.url(&["queues", &self.config.vhost, queue]);
        for condition in conditions {
            url.query_pairs_mut().append_pair(condition, "true");
        }
        let operation = Operation::deletion(deadline);
        let response = self.api.send(operation, Method::DELETE, url, None).await?;
        match response.status {
            _ if response.is_absent() => Ok(true),
            status if status.is_success() => Ok(true),
            StatusCode::BAD_REQUEST if !conditions.is_empty() && is_in_use(&response.reason()) => {
                Ok(false)
            }
            _ => Err(self
                .api
                .response_error(&format!("queue {queue}"), &response)),
        }
    }

    pub(super) async fn delete_if_empty(
        &self,
        queue: &str,
        owner: &QueueOwner,
        untagged: Untagged,
        generation: i64,
        guard: &dyn DeletionGuard,
    ) -> Result<DeleteIfEmptyOutcome, BrokerError> {
        let Some(found) = self.find(queue).await? else {
            return Ok(DeleteIfEmptyOutcome::Deleted);
        };
        let refusal = self.deletion_refusal(queue, owner).await?;
        if let Some(refusal) = refusal.filter(|refusal| !untagged.permits(refusal)) {
            self.empty_confirmations.forget(queue);
            return Ok(DeleteIfEmptyOutcome::NotOwned(refusal));
        }
        if may_be_in_use(&found) {
            self.empty_confirmations.forget(queue);
            return Ok(DeleteIfEmptyOutcome::InUse);
        }
        if found.supports_delete_if_empty() {
            let (conditions, deadline) = (["if-empty", "if-unused"], guard.confirm().await?);
            let deleted = self.remove(queue, &conditions, deadline).await?;
            return Ok(if deleted {
                DeleteIfEmptyOutcome::Deleted
            } else {
                DeleteIfEmptyOutcome::InUse
            });
        }
        if let Some(remaining) = self.empty_confirmations.observe_empty(queue, generation) {
            return Ok(DeleteIfEmptyOutcome::Recheck(remaining));
        }
        let deadline = guard.confirm().await?;
        if self.holds_a_message(queue).await? {
            self.empty_confirmations.forget(queue);
            return Ok(DeleteIfEmptyOutcome::InUse);
        }
        self.remove(queue, &[], deadline).await?;
        self.empty_confirmations.forget(queue);
        Ok(DeleteIfEmptyOutcome::Deleted)
    }

    /// Fetches a message, if there is one, and requeues it.
    async fn holds_a_message(&self, queue: &str) -> Result<bool, BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, queue, "get"]);
        let body =
            json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "base64", "truncate": 1});
        let operation = Operation::write("get");
        let response = self
            .api
            .send(operation, Method::POST, url, Some(&body))
            .await?;
        if response.is_absent() {
            return Ok(false);
        }
        let messages: Vec<Value> = self.api.decode(&format!("queue {queue}"), &response)?;
        Ok(!messages.is_empty())
    }
}

/// Whether something may use the queue. Counts may be missing; then the broker itself must check that it is empty,
/// which it does for classic queues only.
fn may_be_in_use(found: &FoundQueue) -> bool {
    let is_empty = match depth_of(found) {
        Some(depth) => depth == Depth::default(),
        None => found.supports_delete_if_empty(),
    };
    found.consumers > 0 || !is_empty
}

/// Whether a delete condition was not met. RabbitMQ returns HTTP 400 for other reasons too, such as while a node is
/// down (QUE-38).
fn is_in_use(reason: &str) -> bool {
    ["not empty", "in use"]
        .iter()
        .any(|rejection| reason.contains(rejection))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::may_be_in_use;

    /// QUE-13: a message that a consumer holds is in no count that could be read otherwise.
    #[test]
    fn quorum_queue_without_counts_may_be_in_use() {
        let queue = |kind: &str, counts: &Value| {
            let mut queue = json!({"name": "asya-a", "type": kind, "durable": true});
            queue
                .as_object_mut()
                .unwrap()
                .extend(counts.as_object().unwrap().clone());
            may_be_in_use(&serde_json::from_value(queue).unwrap())
        };
        let counts = |ready: u64, unacknowledged: u64, consumers: u64| {
            json!({
                "messages": ready + unacknowledged, "messages_ready": ready,
                "messages_unacknowledged": unacknowledged, "consumers": consumers,
            })
        };
        for kind in ["classic", "quorum"] {
            assert!(!queue(kind, &counts(0, 0, 0)));
            assert!(queue(kind, &counts(1, 0, 0)));
            assert!(queue(kind, &counts(0, 1, 0)));
            assert!(queue(kind, &counts(0, 0, 1)));
        }
        assert!(queue("quorum", &json!({})));
        assert!(
            !queue("classic", &json!({})),
            "deleted on the condition that it is empty"
        );
    }
}
