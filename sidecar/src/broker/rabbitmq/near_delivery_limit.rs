//! Messages that the broker would soon drop: by default, a quorum queue of RabbitMQ 4.0 and later without a dead letter
//! exchange drops a message that was returned more than 20 times. Instead of being returned once more, such a message
//! is published to the end of its queue, where its count starts over (SC-34).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::{DemandSender, RabbitMq};
use crate::broker::{Delivery, Event, MAX_STALLED, MAX_STALLED_SIZE, Receipt, Refusal, Settlement};

/// A message is returned at most this often. Lost connections count as well, so this leaves a margin of two.
const MAX_RETURNS: u64 = 18;

/// Delays before a copy that was not stored is published again. After the last one, the message is processed again
/// instead.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_secs(16);

/// Messages in flight that were returned almost as often as the broker allows.
#[derive(Clone, Debug, Default)]
pub(super) struct NearDeliveryLimit(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// By connection number and delivery tag.
    deliveries: Mutex<HashMap<(u64, u64), Delivery>>,
    /// How many are kept because their copies were refused.
    kept: AtomicUsize,
}

/// Guard of a message that is kept because its copy was refused. While it exists, another message may be delivered in
/// its place. Otherwise a few of them would keep all others in a full queue, which would then refuse their copies
/// forever.
pub(super) struct Kept {
    limit: NearDeliveryLimit,
    demand: DemandSender,
}

impl NearDeliveryLimit {
    /// Records a delivery that must not be returned any more, where `count` is how often it was returned. A message
    /// that is too large for this process cannot be published again.
    pub(super) fn delivered(&self, delivery: &Delivery, count: Option<u64>) {
        if count.is_some_and(|count| count >= MAX_RETURNS) && delivery.is_whole() {
            self.insert(delivery);
        }
    }

    fn insert(&self, delivery: &Delivery) {
        let key = delivery.receipt.key();
        self.0.deliveries.lock().insert(key, delivery.clone());
    }

    /// Takes a delivery, if it must not be returned any more.
    pub(super) fn take(&self, receipt: &Receipt) -> Option<Delivery> {
        self.0.deliveries.lock().remove(&receipt.key())
    }

    /// Forgets all deliveries of a lost connection.
    pub(super) fn clear(&self, connection: u64) {
        let mut deliveries = self.0.deliveries.lock();
        deliveries.retain(|(number, _), _| *number != connection);
    }

    /// How many messages may be delivered in place of those that are kept.
    pub(super) fn made_up_for(&self) -> usize {
        self.0.kept.load(Ordering::Relaxed).min(MAX_STALLED)
    }

    /// Lets another message be delivered in place of one that is kept.
    pub(super) fn keep(&self, demand: &DemandSender) -> Kept {
        self.0.kept.fetch_add(1, Ordering::Relaxed);
        demand.wake();
        Kept {
            limit: self.clone(),
            demand: demand.clone(),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.limit.0.kept.fetch_sub(1, Ordering::Relaxed);
        self.demand.wake();
    }
}

impl RabbitMq {
    /// Moves a message to the end of its queue instead of returning it. The delivery is kept until the copy is stored,
    /// since returning it might make the broker drop it; the margin covers a shutdown. The queue may be full precisely
    /// because results could not be sent, so after a while sending them is tried again.
    pub(super) async fn relocate(self, delivery: Delivery, settlement: Settlement) {
        let receipt = delivery.receipt.clone();
        let (mut delay, mut kept) = (FIRST_DELAY, None);
        loop {
            let stored = tokio::select! {
                biased;
                () = receipt.lost() => return,
                stored = self.publish_to_own_queue(&delivery.body) => stored,
            };
            let refusal = match stored {
                Ok(()) => {
                    tracing::warn!(
                        "a message was returned so often that the broker may drop it; it went to the end of its queue"
                    );
                    // Before settlement, so that the broker does not deliver one more in its place.
                    drop(kept);
                    return self.send(receipt, Settlement::Acknowledge);
                }
                Err(Refusal::TooLarge | Refusal::Closing) => {
                    drop(kept);
                    return self.send(receipt, settlement);
                }
                Err(refusal) => refusal,
            };
            tracing::warn!(
                "a message was returned so often that the broker may drop it; it is kept, since it cannot go to the end of its queue: {refusal}"
            );
            if delivery.body.len() <= MAX_STALLED_SIZE {
                kept.get_or_insert_with(|| self.near_limit.keep(&self.demand));
            }
            tokio::select! {
                biased;
                () = receipt.lost() => return,
                () = self.stopping.cancelled() => {
                    drop(kept);
                    return self.send(receipt, settlement);
                }
                () = sleep(delay) => {}
            }
            if delay >= LAST_DELAY {
                drop(kept);
                return self.deliver_again(delivery);
            }
            delay *= 2;
        }
    }

    /// Processes a message again without returning it, which costs no delivery.
    fn deliver_again(&self, delivery: Delivery) {
        self.near_limit.insert(&delivery);
        // The receiver is gone during shutdown.
        let _ = self.events.send(Event::Kept(delivery));
    }

    /// Publishes to the default exchange, since another exchange might route the copy to other queues only. If that is
    /// not permitted, publishes the way messages come to this queue anyway.
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

    use crate::broker::rabbitmq::tests::{broker, broker_with_events, delivery};
    use crate::broker::{Broker as _, Delivery, Event, MAX_STALLED_SIZE, Refusal, Settlement};
    use crate::decide::Deliveries;

    /// A delivery that must not be returned any more.
    fn often_returned(near_limit: &super::NearDeliveryLimit) -> Delivery {
        let delivery = delivery(Deliveries::Before(18));
        near_limit.delivered(&delivery, Some(18));
        delivery
    }

    /// SC-34, SC-74: the broker would drop the message.
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

    /// SC-31, SC-34: its queue may be full because, for a while, nothing could be sent to the next one, like this
    /// message.
    #[tokio::test(start_paused = true)]
    async fn message_near_the_delivery_limit_is_processed_again_if_its_copy_is_not_stored() {
        let (broker, mut settled, mut published, mut events) = broker_with_events();
        let mut delivery = often_returned(&broker.near_limit);
        for _ in 0..2 {
            let settling = tokio::spawn(broker.settle(&delivery.receipt, Settlement::Requeue));
            for attempt in 0..5 {
                let request = timeout(Duration::from_mins(1), published.recv()).await;
                let request = request.expect("in time").expect("a publication");
                let made_up_for = usize::from(attempt > 0);
                assert_eq!(broker.near_limit.made_up_for(), made_up_for, "{attempt}");
                request.reply.send(Err(Refusal::Nacked)).expect("it waits");
            }
            let found = timeout(Duration::from_mins(1), events.recv()).await;
            let Ok(Some(Event::Kept(again))) = found else {
                panic!("{found:?}");
            };
            settling.await.expect("an end");
            assert_eq!(again.receipt.key(), delivery.receipt.key());
            assert_eq!(again.since, delivery.since, "SC-93");
            assert_eq!(again.deliveries, Deliveries::Before(18));
            assert_eq!(broker.near_limit.made_up_for(), 0);
            assert!(settled.try_recv().is_err(), "it would be dropped");
            delivery = again;
        }
        broker
            .settle(&delivery.receipt, Settlement::Acknowledge)
            .await;
        let (_, settlement) = settled.try_recv().expect("settled");
        assert_eq!(settlement, Settlement::Acknowledge);
        assert!(published.try_recv().is_err());
    }

    /// SC-84
    #[tokio::test(start_paused = true)]
    async fn large_message_near_the_delivery_limit_keeps_its_place() {
        let (broker, _settled, mut published) = broker();
        let body = vec![b' '; MAX_STALLED_SIZE + 1];
        let delivery = Delivery {
            size: body.len(),
            body: body.into(),
            ..delivery(Deliveries::Before(18))
        };
        broker.near_limit.delivered(&delivery, Some(18));
        tokio::spawn(broker.settle(&delivery.receipt, Settlement::Requeue));
        for _ in 0..2 {
            let request = published.recv().await.expect("a publication");
            assert_eq!(broker.near_limit.made_up_for(), 0);
            request.reply.send(Err(Refusal::Nacked)).expect("it waits");
        }
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

    /// SC-83: the copy would consist of its beginning only.
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

    /// SC-21, SC-34: those of a queue that was deleted are still in flight.
    #[tokio::test]
    async fn messages_near_the_delivery_limit_are_forgotten_with_their_own_connection_only() {
        let (broker, _settled, _published) = broker();
        let delivery = often_returned(&broker.near_limit);
        broker.near_limit.clear(2);
        assert!(broker.near_limit.take(&delivery.receipt).is_some());
        broker.near_limit.insert(&delivery);
        broker.near_limit.clear(1);
        assert!(broker.near_limit.take(&delivery.receipt).is_none());
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
