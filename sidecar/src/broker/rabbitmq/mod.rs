//! RabbitMQ: one connection to consume and acknowledge, one to publish, since under an alarm the broker stops to read from
//! those that publish (SC-19).

mod connect;
mod consumers;
mod prefetch;
mod publisher;
mod unconfirmed;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::connect::Connector;
use super::{Broker, Demand, Event, Publication, Receipt, Refusal, Settlement};
use crate::config;
use crate::metrics::BrokerMetrics;

/// Pause of a message that failed, before it is given back (SC-77).
const PAUSE: Duration = Duration::from_secs(1);
/// How long a delivery may be unacknowledged at the broker beyond the runtime's timeout (SC-32).
const MARGIN: Duration = Duration::from_mins(10);
/// Up to this time, the broker's own default of 30 minutes is enough.
const SHORT: Duration = Duration::from_mins(20);

/// The broker.
#[derive(Clone)]
pub struct RabbitMq {
    demand: watch::Sender<Demand>,
    settlements: mpsc::UnboundedSender<(Receipt, Settlement)>,
    publications: mpsc::UnboundedSender<publisher::Request>,
    closing: CancellationToken,
    closed: watch::Receiver<()>,
}

/// What the connections need to know.
pub struct Settings {
    /// How to reach the broker.
    pub broker: config::RabbitMq,
    /// The queue to consume.
    pub queue: String,
    /// The actor's name, for the connections' names.
    pub actor: String,
    /// How long a call of the runtime may take.
    pub runtime_timeout: Duration,
}

impl RabbitMq {
    /// Starts both connections.
    pub fn start(
        settings: &Settings,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
    ) -> Self {
        let (demand, wanted) = watch::channel(Demand::default());
        let (settlements, to_settle) = mpsc::unbounded_channel();
        let (publications, to_publish) = mpsc::unbounded_channel();
        // Each task holds a sender until its connection is closed.
        let (open, closed) = watch::channel(());
        let closing = CancellationToken::new();
        let needed = settings.runtime_timeout + MARGIN;
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
            timeout: (needed > SHORT).then_some(needed),
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
        let consumer_open = open.clone();
        tokio::spawn(async move {
            consumer.run().await;
            drop(consumer_open);
        });
        tokio::spawn(async move {
            publisher.run().await;
            drop(open);
        });
        Self {
            demand,
            settlements,
            publications,
            closing,
            closed,
        }
    }
}

impl Broker for RabbitMq {
    fn demand(&self, demand: Demand) {
        self.demand
            .send_if_modified(|now| std::mem::replace(now, demand) != demand);
    }

    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        // The publisher ends only when it was told to.
        let _ = self
            .publications
            .send(publisher::Request { publication, reply });
        async move { answer.await.unwrap_or(Err(Refusal::Closing)) }
    }

    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static {
        // The session ends only when it was told to.
        let _ = self.settlements.send((receipt.clone(), settlement));
        std::future::ready(())
    }

    fn pause_before_giving_back(&self) -> Duration {
        PAUSE
    }

    async fn close(&self) {
        self.closing.cancel();
        let mut closed = self.closed.clone();
        // Ends when both tasks have dropped their senders.
        while closed.changed().await.is_ok() {}
    }
}
