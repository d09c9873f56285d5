//! Deletes queues whose tags name the actor as owner, and only those (QUE-34).

use asya_shared::transport::ownership::DeletionRefusal;
use asya_shared::transport::ownership::QueueOwner;
use tokio::time::Instant;

use super::Sqs;
use crate::broker::limiter::Operation;
use crate::broker::{
    BrokerError, DeleteIfEmptyOutcome, DeleteOutcome, DeletionGuard, Depth, Untagged,
};

impl Sqs {
    pub(super) async fn delete(
        &self,
        name: &str,
        owner: &QueueOwner,
        guard: &dyn DeletionGuard,
    ) -> Result<DeleteOutcome, BrokerError> {
        let Some(found) = self.find(name).await? else {
            return Ok(DeleteOutcome::Deleted);
        };
        if found.queue.is_dlq() {
            let dead_letters = DeletionRefusal::OtherOwner("the dead letter queues".to_owned());
            return Ok(DeleteOutcome::NotOwned(dead_letters));
        }
        if let Some(refusal) = found.queue.deletion_refusal(owner, &self.cluster) {
            return Ok(DeleteOutcome::NotOwned(refusal));
        }
        self.remove(name, &found.url, guard.confirm().await?)
            .await?;
        Ok(DeleteOutcome::Deleted)
    }

    async fn remove(&self, name: &str, url: &str, deadline: Instant) -> Result<(), BrokerError> {
        let call = self.sdk.delete_queue().queue_url(url).send();
        self.send(Operation::deletion(deadline), name, call).await?;
        self.urls.lock().remove(name);
        Ok(())
    }

    pub(super) async fn delete_if_empty(
        &self,
        name: &str,
        owner: &QueueOwner,
        untagged: Untagged,
        generation: i64,
        guard: &dyn DeletionGuard,
    ) -> Result<DeleteIfEmptyOutcome, BrokerError> {
        let Some(found) = self.find(name).await? else {
            return Ok(DeleteIfEmptyOutcome::Deleted);
        };
        let refusal = found.queue.deletion_refusal(owner, &self.cluster);
        if let Some(refusal) = refusal.filter(|refusal| !untagged.permits(refusal)) {
            self.empty_confirmations.forget(name);
            return Ok(DeleteIfEmptyOutcome::NotOwned(refusal));
        }
        if found.depth() != Some(Depth::default()) {
            self.empty_confirmations.forget(name);
            return Ok(DeleteIfEmptyOutcome::InUse);
        }
        if let Some(remaining) = self.empty_confirmations.observe_empty(name, generation) {
            return Ok(DeleteIfEmptyOutcome::Recheck(remaining));
        }
        self.remove(name, &found.url, guard.confirm().await?)
            .await?;
        self.empty_confirmations.forget(name);
        Ok(DeleteIfEmptyOutcome::Deleted)
    }
}
