//! Deletes queues whose tags mark them as the actor's, and only those (QUE-34).

use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;

use super::Sqs;
use crate::broker::gate::Operation;
use crate::broker::{BrokerError, Deleted, Depth, Emptied};

impl Sqs {
    pub(super) async fn delete(&self, name: &str, owner: &Owner) -> Result<Deleted, BrokerError> {
        let Some(found) = self.find(name).await? else {
            return Ok(Deleted::Gone);
        };
        if found.queue.is_dlq() {
            let dead_letters = NotOurs::Of("the dead letter queues".to_owned());
            return Ok(Deleted::Left(dead_letters));
        }
        if let Some(not_ours) = found.queue.withheld_from(owner, &self.cluster) {
            return Ok(Deleted::Left(not_ours));
        }
        self.remove(name, &found.url).await?;
        Ok(Deleted::Gone)
    }

    async fn remove(&self, name: &str, url: &str) -> Result<(), BrokerError> {
        let call = self.sdk.delete_queue().queue_url(url).send();
        self.ask(Operation::write("delete"), name, call).await?;
        self.urls.lock().remove(name);
        Ok(())
    }

    pub(super) async fn delete_if_empty(
        &self,
        name: &str,
        owner: &Owner,
    ) -> Result<Emptied, BrokerError> {
        let Some(found) = self.find(name).await? else {
            return Ok(Emptied::Gone);
        };
        if let Some(not_ours) = found.queue.withheld_from(owner, &self.cluster) {
            self.zeros.forget(name);
            return Ok(Emptied::Left(not_ours));
        }
        if found.depth() != Some(Depth::default()) {
            self.zeros.forget(name);
            return Ok(Emptied::Kept);
        }
        if let Some(left) = self.zeros.again(name) {
            return Ok(Emptied::Later(left));
        }
        self.remove(name, &found.url).await?;
        Ok(Emptied::Gone)
    }
}
