//! Messages that the broker would soon drop: without a configured limit, a quorum queue of RabbitMQ 4.0 and later drops
//! a message that was returned more than 20 times, if it has no dead letter exchange. Instead of being returned once
//! more, they are published to the end of their queue, where their count starts over (SC-34).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::RabbitMq;
use crate::broker::{Delivery, Receipt, Refusal, Settlement};

/// Returned at most this often. Lost connections count as well, so this leaves a margin of two.
const MAX_RETURNS: u64 = 18;

/// Delays before the copy of a message is published again if it was not stored.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The bodies of messages in flight that were returned almost as often as the broker allows, by connection
/// number and delivery tag.
#[derive(Clone, Debug, Default)]
pub(super) struct NearDeliveryLimit(Arc<Mutex<HashMap<(u64, u64), Bytes>>>);

impl NearDeliveryLimit {
    /// Keeps the body of a delivery that must not be returned any more. `count`: how often it was returned. A message
    /// that is too large for this process cannot be published again.
    pub(super) fn delivered(&self, delivery: &Delivery, count: Option<u64>) {
        if count.is_some_and(|count| count >= MAX_RETURNS) && delivery.is_whole() {
            let body = delivery.body.clone();
            self.0.lock().insert(delivery.receipt.key(), body);
        }
    }

    /// Takes the body of a delivery that must not be returned any more.
    pub(super) fn take(&self, receipt: &Receipt) -> Option<Bytes> {
        self.0.lock().remove(&receipt.key())
    }

    /// Forgets all deliveries of a lost connection.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl RabbitMq {
    /// Moves a message to the end of its queue instead of returning it. Until the copy is stored, the delivery is kept,
    /// since returning it may make the broker drop it; at shutdown, the margin covers that.
    pub(super) async fn relocate(self, receipt: Receipt, body: Bytes, settlement: Settlement) {
        let mut delay = FIRST_DELAY;
        loop {
            let stored = tokio::select! {
                biased;
                () = receipt.lost() => return,
                stored = self.publish_to_own_queue(&body) => stored,
            };
            let refusal = match stored {
                Ok(()) => {
                    tracing::warn!(
                        "a message was returned so often that the broker may drop it; it went to the end of its queue"
                    );
                    return self.send(receipt, Settlement::Acknowledge);
                }
                Err(Refusal::TooLarge | Refusal::Closing) => return self.send(receipt, settlement),
                Err(refusal) => refusal,
            };
            tracing::warn!(
                "a message was returned so often that the broker may drop it; it is kept, since it cannot go to the end of its queue: {refusal}"
            );
            tokio::select! {
                biased;
                () = receipt.lost() => return,
                () = self.stopping.cancelled() => return self.send(receipt, settlement),
                () = sleep(delay) => {}
            }
            delay = (delay * 2).min(MAX_DELAY);
        }
    }

    /// Through the default exchange, since another one may route the copy to other queues only. Without permission for
    /// it, there is no other way than the one by which messages come to this queue anyway.
    async fn publish_to_own_queue(&self, body: &Bytes) -> Result<(), Refusal> {
        match self.request(self.relocated(body.clone()), true).await {
            Err(Refusal::Forbidden(_)) => self.request(self.relocated(body.clone()), false).await,
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc::error::TryRecvError;
    use tokio::time::timeout;

    use crate::broker::rabbitmq::tests::{broker, delivery};
    use crate::broker::{Broker as _, Delivery, Refusal, Settlement};
    use crate::decide::Deliveries;

    /// A delivery that was returned often.
    fn often_returned(near_limit: &super::NearDeliveryLimit) -> Delivery {
        let delivery = delivery(Deliveries::Before(18));
        near_limit.delivered(&delivery, Some(18));
        delivery
    }

    /// SC-34, SC-74: the broker would drop it.
    #[tokio::test(start_paused = true)]
    async fn message_near_the_delivery_limit_is_kept_until_its_copy_is_stored() {
        let (broker, mut settled, mut published) = broker();
        let delivery = often_returned(&broker.near_limit);
        let settling = tokio::spawn(broker.settle(&delivery.receipt, Settlement::Requeue));
        for (result, must_reach_queue) in [
            (Err(Refusal::Nacked), true),
            (Err(Refusal::NoQueue), true),
            (Err(Refusal::Forbidden(String::new())), true),
            (Err(Refusal::Nacked), false),
            (Ok(()), true),
        ] {
            let request = timeout(Duration::from_mins(1), published.recv()).await;
            let request = request.expect("in time").expect("a publication");
            assert_eq!(&*request.publication.queue, "asya-foo");
            assert_eq!(request.must_reach_queue, must_reach_queue, "SC-24");
            assert_eq!(settled.try_recv().err(), Some(TryRecvError::Empty));
            request.reply.send(result).expect("it waits");
        }
        settling.await.expect("an end");
        let (_, settlement) = settled.try_recv().expect("settled");
        assert_eq!(settlement, Settlement::Acknowledge);
    }

    /// SC-30, SC-34, SC-79
    #[tokio::test(start_paused = true)]
    async fn message_near_the_delivery_limit_is_returned_at_shutdown_or_if_no_attempt_can_succeed()
    {
        for refusal in [Refusal::Nacked, Refusal::Closing, Refusal::TooLarge] {
            let (broker, mut settled, mut published) = broker();
            let delivery = often_returned(&broker.near_limit);
            let settling = tokio::spawn(broker.settle(&delivery.receipt, Settlement::Requeue));
            let request = published.recv().await.expect("a publication");
            if refusal == Refusal::Nacked {
                broker.stopping.cancel();
            }
            request.reply.send(Err(refusal)).expect("it waits");
            settling.await.expect("an end");
            let (_, settlement) = settled.try_recv().expect("settled");
            assert_eq!(settlement, Settlement::Requeue);
            assert!(published.try_recv().is_err());
        }
    }

    /// SC-83: the copy would be its beginning only.
    #[tokio::test]
    async fn message_of_which_only_the_beginning_is_known_is_not_published_again() {
        let (broker, mut settled, mut published) = broker();
        broker.counting.delivered(Deliveries::Redelivered);
        let delivery = Delivery {
            size: 100,
            ..delivery(Deliveries::Redelivered)
        };
        broker.near_limit.delivered(&delivery, Some(18));
        broker.defer(&delivery).await;
        assert!(published.try_recv().is_err());
        let (_, settlement) = settled.try_recv().expect("settled");
        assert_eq!(settlement, Settlement::RequeueFailed);
    }

    /// SC-74: the broker delivers the message again, and both would be processed.
    #[tokio::test(start_paused = true)]
    async fn no_copy_is_published_for_a_lost_delivery() {
        let (broker, mut settled, mut published) = broker();
        let delivery = often_returned(&broker.near_limit);
        let settling = tokio::spawn(broker.settle(&delivery.receipt, Settlement::Requeue));
        let request = published.recv().await.expect("a publication");
        request.reply.send(Err(Refusal::Nacked)).expect("it waits");
        delivery.receipt.lost.cancel();
        settling.await.expect("an end");
        assert!(settled.try_recv().is_err() && published.try_recv().is_err());
    }
}
