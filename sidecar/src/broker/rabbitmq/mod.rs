//! RabbitMQ: one connection for consuming, one for publishing. Under a resource alarm the broker stops reading from
//! publishing connections, which would delay acknowledgements (SC-19).

mod connect;
mod consumers;
mod near_delivery_limit;
mod prefetch;
mod publisher;
mod stream;
mod unacknowledged;
mod unconfirmed;

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connect::Connector;
use self::near_delivery_limit::NearDeliveryLimit;
use super::demand::{self, DemandSender};
use super::{Broker, Demand, Event, Origin, Publication, Receipt, Refusal, Settlement};
use crate::config::{self, Lookahead};
use crate::metrics::BrokerMetrics;

/// How long a failed message is held before it is requeued (SC-77).
const REQUEUE_DELAY: Duration = Duration::from_secs(1);
/// Margin of the consumer timeout over the runtime timeout (SC-32).
const CONSUMER_TIMEOUT_MARGIN: Duration = Duration::from_mins(10);
/// An end actor's handler is tried three times, with pauses of 5 s in all (SC-70).
const END_ATTEMPTS: u32 = 3;
const END_PAUSES: Duration = Duration::from_secs(5);
/// Up to this timeout the broker's default of 30 minutes suffices.
const MAX_FOR_BROKER_DEFAULT: Duration = Duration::from_mins(20);

/// The broker.
#[derive(Clone)]
pub struct RabbitMq {
    demand: DemandSender,
    settlements: mpsc::UnboundedSender<(Receipt, Settlement)>,
    publications: mpsc::UnboundedSender<publisher::Request>,
    /// The queue that is consumed.
    queue: String,
    near_limit: NearDeliveryLimit,
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
    /// Whether the actor is an end actor.
    pub is_end: bool,
    /// Open requests at the runtime.
    pub slots: usize,
    /// Prefetch policy.
    pub lookahead: Lookahead,
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
        let near_limit = NearDeliveryLimit::default();
        let closing = CancellationToken::new();
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
            near_limit: near_limit.clone(),
            timeout: consumers::ConsumerTimeout::new(consumer_timeout(settings)),
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
            queue: settings.queue.clone(),
            near_limit,
            closing,
            connections,
        }
    }
}

impl RabbitMq {
    fn send(&self, receipt: Receipt, settlement: Settlement) {
        // The consumer task ends only at shutdown.
        let _ = self.settlements.send((receipt, settlement));
    }

    /// A copy of a message for the end of the queue that is consumed.
    fn relocated(&self, body: Bytes) -> Publication {
        Publication {
            queue: self.queue.clone(),
            id: String::new(),
            body,
            origin: Origin::default(),
            index: 0,
        }
    }
}

/// How long a delivery may stay unsettled, where the broker's default is too short (SC-32).
fn consumer_timeout(settings: &Settings) -> Option<Duration> {
    let processing = if settings.is_end {
        settings
            .runtime_timeout
            .saturating_mul(END_ATTEMPTS)
            .saturating_add(END_PAUSES)
    } else {
        settings.runtime_timeout
    };
    // With `auto`, no message waits behind a long call.
    let prefetched = match settings.lookahead {
        Lookahead::Auto => 0,
        Lookahead::Fixed(count) => count,
        Lookahead::InFlight(count) => count.saturating_sub(settings.slots),
    };
    let rounds = 1 + prefetched.div_ceil(settings.slots.max(1));
    let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
    let needed = processing
        .saturating_mul(rounds)
        .saturating_add(CONSUMER_TIMEOUT_MARGIN);
    (needed > MAX_FOR_BROKER_DEFAULT).then_some(needed)
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
        let near_limit = self.near_limit.take(receipt);
        let relocating = near_limit.filter(|_| settlement.is_requeue()).map(|body| {
            tracing::warn!(
                "a message was returned so often that the broker may drop it; it goes to the end of its queue"
            );
            (self.clone(), receipt.clone(), self.publish(self.relocated(body)))
        });
        if relocating.is_none() {
            self.send(receipt.clone(), settlement);
        }
        async move {
            if let Some((broker, receipt, relocating)) = relocating {
                let stored = relocating.await.is_ok();
                let settlement = if stored {
                    Settlement::Acknowledge
                } else {
                    settlement
                };
                broker.send(receipt, settlement);
            }
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
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::{Settings, consumer_timeout};
    use crate::config::{Config, Lookahead, Transport};

    /// SC-32, SC-70
    #[test]
    fn the_consumer_timeout_covers_all_attempts_and_calls_that_a_prefetched_message_waits_for() {
        use Lookahead::{Auto, Fixed, InFlight};
        let environment = BTreeMap::from([("ASYA_ACTOR_NAME".to_owned(), "foo".to_owned())]);
        let Ok(Config {
            transport: Transport::RabbitMq(broker),
            ..
        }) = Config::read(&environment)
        else {
            panic!("settings for RabbitMQ");
        };
        let minutes = |count: u64| Some(Duration::from_mins(count));
        for (timeout, is_end, slots, lookahead, expected) in [
            (5, false, 1, Auto, None),
            (10, false, 1, Auto, None),
            (11, false, 1, Auto, minutes(21)),
            // 10 min fit into the default, three times 10 min do not.
            (
                10,
                true,
                1,
                Auto,
                minutes(40).map(|most| most + Duration::from_secs(5)),
            ),
            (3, true, 1, Auto, None),
            (5, false, 1, Fixed(0), None),
            (5, false, 1, Fixed(4), minutes(35)),
            (5, false, 8, Fixed(8), None),
            (6, false, 8, Fixed(9), minutes(28)),
            (
                10,
                true,
                2,
                Fixed(1),
                minutes(70).map(|most| most + Duration::from_secs(10)),
            ),
            (20, false, 8, InFlight(1), minutes(30)),
            (20, false, 8, InFlight(16), minutes(50)),
        ] {
            let settings = Settings {
                broker: broker.clone(),
                queue: "asya-foo".to_owned(),
                actor: "foo".to_owned(),
                runtime_timeout: Duration::from_mins(timeout),
                is_end,
                slots,
                lookahead,
            };
            assert_eq!(
                consumer_timeout(&settings),
                expected,
                "{timeout} min, {is_end}, {slots}, {lookahead:?}"
            );
        }
    }
}
