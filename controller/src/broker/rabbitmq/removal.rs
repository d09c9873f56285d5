//! Deletes queues marked as the actor's, and only those (RMQ-6, QUE-34).

use asya_shared::transport::sqs::Owner;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Rabbitmq, depth_of};
use crate::broker::gate::Operation;
use crate::broker::{BrokerError, Deleted, Depth, Emptied};

impl Rabbitmq {
    pub(super) async fn delete(&self, queue: &str, owner: &Owner) -> Result<Deleted, BrokerError> {
        if self.find(queue).await?.is_none() {
            return Ok(Deleted::Gone);
        }
        if let Some(not_ours) = self.withheld(queue, owner).await? {
            return Ok(Deleted::Left(not_ours));
        }
        self.remove(queue, &[]).await?;
        Ok(Deleted::Gone)
    }

    /// Returns whether the queue is deleted: with conditions the broker may refuse.
    async fn remove(&self, queue: &str, conditions: &[&str]) -> Result<bool, BrokerError> {
        let mut url = self.api.url(&["queues", &self.config.vhost, queue]);
        for condition in conditions {
            url.query_pairs_mut().append_pair(condition, "true");
        }
        let operation = Operation::write("delete");
        let answer = self.api.send(operation, Method::DELETE, url, None).await?;
        match answer.status {
            _ if answer.is_absent() => Ok(true),
            status if status.is_success() => Ok(true),
            StatusCode::BAD_REQUEST if !conditions.is_empty() && is_in_use(&answer.reason()) => {
                Ok(false)
            }
            _ => Err(self.api.refusal(&format!("queue {queue}"), &answer)),
        }
    }

    pub(super) async fn delete_if_empty(
        &self,
        queue: &str,
        owner: &Owner,
    ) -> Result<Emptied, BrokerError> {
        let Some(found) = self.find(queue).await? else {
            return Ok(Emptied::Gone);
        };
        if let Some(not_ours) = self.withheld(queue, owner).await? {
            self.zeros.forget(queue);
            return Ok(Emptied::Left(not_ours));
        }
        let used = found.consumers > 0 || depth_of(&found).unwrap_or_default() != Depth::default();
        if used {
            self.zeros.forget(queue);
            return Ok(Emptied::Kept);
        }
        if found.knows_if_empty() {
            let gone = self.remove(queue, &["if-empty", "if-unused"]).await?;
            return Ok(if gone { Emptied::Gone } else { Emptied::Kept });
        }
        if let Some(left) = self.zeros.again(queue) {
            return Ok(Emptied::Later(left));
        }
        if self.holds_a_message(queue).await? {
            return Ok(Emptied::Kept);
        }
        self.remove(queue, &[]).await?;
        Ok(Emptied::Gone)
    }

    /// Fetches a message, if there is one, and requeues it.
    async fn holds_a_message(&self, queue: &str) -> Result<bool, BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, queue, "get"]);
        let body =
            json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "base64", "truncate": 1});
        let operation = Operation::write("get");
        let answer = self
            .api
            .send(operation, Method::POST, url, Some(&body))
            .await?;
        if answer.is_absent() {
            return Ok(false);
        }
        let messages: Vec<Value> = self.api.decode(&format!("queue {queue}"), &answer)?;
        Ok(!messages.is_empty())
    }
}

/// Whether a delete condition was not met. RabbitMQ returns HTTP 400 for much else, such as while a node is down
/// (QUE-38).
fn is_in_use(reason: &str) -> bool {
    ["not empty", "in use"]
        .iter()
        .any(|refused| reason.contains(refused))
}
