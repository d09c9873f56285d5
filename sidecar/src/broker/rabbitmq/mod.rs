//! RabbitMQ: one connection for consuming, one for publishing. Under a resource alarm the broker stops reading from
//! publishing connections, which would delay acknowledgements (SC-19).

mod connect;
mod consumers;
mod prefetch;
mod publisher;
mod stream;
mod unacknowledged;
mod unconfirmed;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connect::Connector;
use super::demand::{self, DemandSender};
use super::{Broker, Demand, Event, Publication, Receipt, Refusal, Settlement};
use crate::config;
use crate::metrics::BrokerMetrics;

/// How long a failed message is held before it is requeued (SC-77).
const REQUEUE_DELAY: Duration = Duration::from_secs(1);
/// Margin of the consumer timeout over the runtime timeout (SC-32).
const CONSUMER_TIMEOUT_MARGIN: Duration = Duration::from_mins(10);
/// Up to this timeout the broker's default of 30 minutes suffices.
const MAX_FOR_BROKER_DEFAULT: Duration = Duration::from_mins(20);

/// The broker.
#[derive(Clone)]
pub struct RabbitMq {
    demand: DemandSender,
    settlements: mpsc::UnboundedSender<(Receipt, Settlement)>,
    publications: mpsc::UnboundedSender<publisher::Request>,
    closing: CancellationToken,
    /// One task per connection.
    connections: TaskTracker,
}

/// Settings of both connections.
pub struct Settings {
    /// Connection settings.
    pub broker: config::RabbitMq,
    /// The queue to consume.
    pub queue: String,
    /// The actor's name, part of the connection names.
    pub actor: String,
    /// Timeout of a runtime call.
    pub runtime_timeout: Duration,
}

impl RabbitMq {
    /// Starts both connections.
    pub fn start(
        settings: &Settings,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
    ) -> Self {
        let (demand, wanted) = demand::channel();
        let (settlements, to_settle) = mpsc::unbounded_channel();
        let (publications, to_publish) = mpsc::unbounded_channel();
        let closing = CancellationToken::new();
        let needed = settings.runtime_timeout + CONSUMER_TIMEOUT_MARGIN;
        let connector = |metrics| {
            Connector::new(
                settings.broker.clone(),
                &settings.actor,
                closing.clone(),
                metrics,
            )
        };
        let consumer = consumers::Session {
            connector: connector(metrics.clone()),
            queue: settings.queue.clone(),
            timeout: (needed > MAX_FOR_BROKER_DEFAULT).then_some(needed),
            demand: wanted,
            settlements: to_settle,
            events: events.clone(),
            metrics: metrics.clone(),
        };
        let publisher = publisher::Publisher::new(
            connector(metrics.clone()),
            &settings.broker,
            to_publish,
            events,
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
            closing,
            connections,
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
        let (reply, result) = oneshot::channel();
        // The publisher task ends only at shutdown.
        let _ = self
            .publications
            .send(publisher::Request { publication, reply });
        async move { result.await.unwrap_or(Err(Refusal::Closing)) }
    }

    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static {
        // The consumer task ends only at shutdown.
        let _ = self.settlements.send((receipt.clone(), settlement));
        std::future::ready(())
    }

    fn requeue_delay(&self) -> Duration {
        REQUEUE_DELAY
    }

    async fn close(&self) {
        self.closing.cancel();
        self.connections.wait().await;
    }
}
