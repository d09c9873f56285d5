//! RabbitMQ: one connection for consuming, one for publishing. Under a resource alarm the broker stops reading from
//! publishing connections, which would delay acknowledgements (SC-19).

mod connect;
mod consumers;
mod consuming;
mod counting;
mod detached;
mod near_delivery_limit;
mod prefetch;
mod publisher;
mod stream;
#[cfg(test)]
mod testing;
mod unacknowledged;
mod unconfirmed;

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connect::Connector;
use self::counting::Counting;
use self::near_delivery_limit::NearDeliveryLimit;
use super::demand::{self, DemandSender};
use super::{Broker, Delivery, Demand, Event, Origin, Publication, Receipt, Refusal, Settlement};
use crate::config;
use crate::envelope::Message;
use crate::metrics::BrokerMetrics;

/// How long a failed message is held before it is requeued (SC-77).
const REQUEUE_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct RabbitMq {
    demand: DemandSender,
    settlements: mpsc::UnboundedSender<(Receipt, Settlement)>,
    publications: mpsc::UnboundedSender<publisher::Request>,
    /// The consumed queue.
    queue: String,
    near_limit: NearDeliveryLimit,
    counting: Counting,
    events: mpsc::UnboundedSender<Event>,
    /// Cancelled on shutdown, before the connections are closed.
    stopping: CancellationToken,
    closing: CancellationToken,
    /// Tracks one task per connection.
    connections: TaskTracker,
}

/// Settings of both connections.
pub struct ConnectionSettings {
    pub broker: config::RabbitMqConfig,
    pub queue: String,
    /// The actor's name, which is part of the connection names.
    pub actor: String,
    /// The consumer timeout to request, if the broker's default is too short.
    pub consumer_timeout: Option<Duration>,
    /// Larger messages are received only in part; `None`: no limit.
    pub max_message_size: Option<usize>,
    /// Cancelled on shutdown.
    pub stopping: CancellationToken,
}

impl RabbitMq {
    /// Starts both connections.
    pub fn start(
        settings: &ConnectionSettings,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
    ) -> Self {
        let (demand, wanted) = demand::channel();
        let (settlements, to_settle) = mpsc::unbounded_channel();
        let (publications, to_publish) = mpsc::unbounded_channel();
        let near_limit = NearDeliveryLimit::default();
        let counting = Counting::default();
        let closing = CancellationToken::new();
        let connector = |metrics| {
            Connector::new(
                settings.broker.clone(),
                &settings.actor,
                settings.max_message_size,
                closing.clone(),
                metrics,
            )
        };
        let consumer = consumers::Session {
            connector: connector(metrics.clone()),
            queue: settings.queue.clone(),
            near_limit: near_limit.clone(),
            counting: counting.clone(),
            timeout: consumers::ConsumerTimeout::new(settings.consumer_timeout),
            demand: wanted,
            settlements: to_settle,
            events: events.clone(),
            metrics: metrics.clone(),
            detached: Vec::new(),
        };
        let publisher = publisher::Publisher::new(
            connector(metrics.clone()),
            &settings.broker,
            to_publish,
            events.clone(),
            metrics,
        );
        let connections = TaskTracker::new();
        connections.spawn(consumer.run());
        connections.spawn(publisher.run());
        connections.close();
        Self {
            demand,
            settlements,
            publications,
            queue: settings.queue.clone(),
            near_limit,
            counting,
            events,
            stopping: settings.stopping.clone(),
            closing,
            connections,
        }
    }
}

impl RabbitMq {
    fn request(
        &self,
        publication: Publication,
        must_reach_queue: bool,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        let (reply, result) = oneshot::channel();
        // The publisher task ends only at shutdown.
        let _ = self.publications.send(publisher::Request {
            publication,
            reply,
            must_reach_queue,
        });
        async move { result.await.unwrap_or(Err(Refusal::Closing)) }
    }

    fn send(&self, receipt: Receipt, settlement: Settlement) {
        // The consumer task ends only at shutdown.
        let _ = self.settlements.send((receipt, settlement));
    }

    /// A copy of a message, to be published to the end of the consumed queue.
    fn relocated(&self, body: Bytes) -> Publication {
        let id = Message::read(&body)
            .ok()
            .and_then(|message| message.id_text());
        Publication {
            queue: self.queue.clone(),
            id: id.unwrap_or_default(),
            body,
            origin: Origin::default(),
            index: 0,
        }
    }
}

impl Broker for RabbitMq {
    fn demand(&self, demand: Demand) {
        self.demand.set(demand);
    }

    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        self.request(publication, false)
    }

    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static {
        let near_limit = self.near_limit.take(receipt);
        let relocating = near_limit
            .filter(|_| settlement.is_requeue())
            .map(|delivery| self.clone().relocate(delivery, settlement));
        if relocating.is_none() {
            self.send(receipt.clone(), settlement);
        }
        async move {
            if let Some(relocating) = relocating {
                relocating.await;
            }
        }
    }

    fn defer(&self, delivery: &Delivery) -> impl Future<Output = ()> + Send + 'static {
        let (this, receipt) = (self.clone(), delivery.receipt.clone());
        // A queue that counts deliveries must see each failure, so that its delivery limit can end them.
        let relocating = (self.counting.is_absent() && delivery.is_whole())
            .then(|| self.request(self.relocated(delivery.body.clone()), true));
        async move {
            let stored = match relocating {
                Some(relocating) => relocating.await.is_ok(),
                None => false,
            };
            let settlement = if stored {
                Settlement::Acknowledge
            } else {
                Settlement::RequeueFailed
            };
            this.settle(&receipt, settlement).await;
        }
    }

    fn requeue_delay(&self) -> Duration {
        REQUEUE_DELAY
    }

    async fn close(&self) {
        self.closing.cancel();
        self.connections.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::{Counting, NearDeliveryLimit, RabbitMq, demand, publisher};
    use crate::broker::{Broker as _, Delivery, Event, Origin, Receipt, Refusal, Settlement};
    use crate::decide::Deliveries;

    type Settlements = mpsc::UnboundedReceiver<(Receipt, Settlement)>;
    type Publications = mpsc::UnboundedReceiver<publisher::Request>;
    type Events = mpsc::UnboundedReceiver<Event>;

    /// A broker without connections, and the requests to its tasks.
    pub(super) fn broker() -> (RabbitMq, Settlements, Publications) {
        let (broker, settled, published, _) = broker_with_events();
        (broker, settled, published)
    }

    /// A broker without connections, the requests to its tasks, and its events.
    pub(super) fn broker_with_events() -> (RabbitMq, Settlements, Publications, Events) {
        let (events, reported) = mpsc::unbounded_channel();
        let (settlements, settled) = mpsc::unbounded_channel();
        let (publications, published) = mpsc::unbounded_channel();
        let broker = RabbitMq {
            demand: demand::channel().0,
            settlements,
            publications,
            queue: "asya-foo".to_owned(),
            near_limit: NearDeliveryLimit::default(),
            counting: Counting::default(),
            events,
            stopping: CancellationToken::new(),
            closing: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        (broker, settled, published, reported)
    }

    pub(super) fn delivery(deliveries: Deliveries) -> Delivery {
        Delivery {
            receipt: Receipt::new(1, 1, CancellationToken::new()),
            body: r#"{"id":"7"}"#.into(),
            size: 10,
            deliveries,
            origin: Origin::default(),
            since: Instant::now(),
        }
    }

    /// SC-26, SC-72: the copy is stored before its source is acknowledged.
    #[tokio::test]
    async fn deferred_message_goes_to_the_end_of_a_queue_that_does_not_count_deliveries() {
        for (stored, expected) in [
            (Ok(()), Settlement::Acknowledge),
            (Err(Refusal::Nacked), Settlement::RequeueFailed),
            (Err(Refusal::Closing), Settlement::RequeueFailed),
        ] {
            let (broker, mut settled, mut published) = broker();
            broker.counting.delivered(Deliveries::Redelivered);
            let deferring = tokio::spawn(broker.defer(&delivery(Deliveries::First)));
            let request = published.recv().await.expect("a publication");
            let publication = &request.publication;
            assert_eq!((&*publication.queue, &*publication.id), ("asya-foo", "7"));
            assert_eq!(publication.body, r#"{"id":"7"}"#);
            assert!(request.must_reach_queue, "SC-24");
            tokio::task::yield_now().await;
            assert!(settled.try_recv().is_err(), "not yet confirmed");
            request.reply.send(stored).expect("it waits");
            deferring.await.expect("an end");
            assert_eq!(settled.try_recv().expect("settled").1, expected);
        }
    }

    /// SC-26, SC-34: its delivery limit ends the retries; and a first delivery does not show whether the queue counts.
    #[tokio::test]
    async fn deferred_message_is_rejected_where_deliveries_may_count() {
        for deliveries in [Deliveries::First, Deliveries::Before(1)] {
            let (broker, mut settled, mut published) = broker();
            broker.counting.delivered(deliveries);
            broker.defer(&delivery(deliveries)).await;
            assert!(published.try_recv().is_err(), "{deliveries:?}");
            let (_, settlement) = settled.try_recv().expect("settled");
            assert_eq!(settlement, Settlement::RequeueFailed);
        }
        let (broker, _, _) = broker();
        broker.counting.delivered(Deliveries::Redelivered);
        broker.counting.clear();
        assert!(!broker.counting.is_absent(), "another queue may follow");
    }
}
