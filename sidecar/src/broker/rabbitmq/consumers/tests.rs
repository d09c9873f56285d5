//! A consuming connection to a simulated classic queue.

mod cancelled;
mod classic_queue;

use std::time::Duration;

use asya_amqp::Purpose;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::classic_queue::ClassicQueue;
use super::{ConsumerTimeout, Consuming, Deliveries, Session, deliveries};
use crate::broker::demand::{self, DemandSender};
use crate::broker::rabbitmq::connect::Connector;
use crate::broker::rabbitmq::counting::Counting;
use crate::broker::rabbitmq::near_delivery_limit::NearDeliveryLimit;
use crate::broker::rabbitmq::testing::{connected, settings};
use crate::broker::{Delivery, Demand, Event, Receipt, Settlement};
use crate::config::RabbitMqConfig;
use crate::metrics::BrokerMetrics;

type Settlements = mpsc::UnboundedSender<(Receipt, Settlement)>;

/// A session, its settlements, and the events that it reports.
fn session(
    settings: RabbitMqConfig,
    demand: watch::Receiver<Demand>,
) -> (Session, Settlements, mpsc::UnboundedReceiver<Event>) {
    let metrics = BrokerMetrics::default();
    let (settlements, to_settle) = mpsc::unbounded_channel();
    let (told, events) = mpsc::unbounded_channel();
    let session = Session {
        connector: Connector::new(
            settings,
            "foo",
            None,
            CancellationToken::new(),
            metrics.clone(),
        ),
        queue: "asya-foo".to_owned(),
        near_limit: NearDeliveryLimit::default(),
        counting: Counting::default(),
        timeout: ConsumerTimeout::new(None),
        demand,
        settlements: to_settle,
        events: told,
        metrics,
        detached: Vec::new(),
    };
    (session, settlements, events)
}

/// A session with a classic queue.
struct Bench {
    queue: ClassicQueue,
    demand: DemandSender,
    settlements: Settlements,
    events: mpsc::UnboundedReceiver<Event>,
    near_limit: NearDeliveryLimit,
}

impl Bench {
    /// Starts with this many messages in the queue.
    async fn start(messages: usize) -> Self {
        let (connection, theirs) = connected(Purpose::Consume).await;
        let queue = ClassicQueue::serve(theirs, messages);
        let (demand, wanted) = demand::channel();
        let (mut session, settlements, events) = session(settings(), wanted);
        let near_limit = session.near_limit.clone();
        tokio::spawn(async move {
            session
                .serve(connection, &mut Consuming::new(1, None))
                .await;
        });
        Self {
            queue,
            demand,
            settlements,
            events,
            near_limit,
        }
    }

    async fn delivered(&mut self) -> Delivery {
        let delivered = async {
            loop {
                if let Some(Event::Delivered(delivery)) = self.events.recv().await {
                    return delivery;
                }
            }
        };
        let found = timeout(Duration::from_secs(5), delivered).await;
        found.expect("a delivery")
    }

    fn settle(&self, delivery: &Delivery, settlement: Settlement) {
        let sent = self
            .settlements
            .send((delivery.receipt.clone(), settlement));
        sent.expect("a session");
    }

    /// Waits until the queue holds this many ready and this many unsettled messages.
    async fn wait_for_counts(&self, ready: usize, unsettled: usize) {
        let found = async {
            while self.queue.counts() != (ready, unsettled) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let found = timeout(Duration::from_secs(5), found).await;
        assert!(found.is_ok(), "{:?}", self.queue.counts());
    }
}

/// SC-43, SC-44: the queue would redeliver it at once, to the consumer that is about to be cancelled.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_with_the_lookahead_does_not_return_to_this_process() {
    let mut bench = Bench::start(20).await;
    bench.demand.set(Demand {
        slots: 1,
        lookahead: 16,
    });
    let mut deliveries = Vec::new();
    for _ in 0..17 {
        deliveries.push(bench.delivered().await);
    }
    bench.demand.set(Demand {
        slots: 1,
        lookahead: 0,
    });
    for delivery in &deliveries[1..] {
        bench.settle(delivery, Settlement::RequeueNow);
    }
    bench.wait_for_counts(19, 1).await;
    assert!(bench.events.try_recv().is_err(), "delivered again");
    bench.settle(&deliveries[0], Settlement::Acknowledge);
    let next = bench.delivered().await;
    assert_eq!(
        (&*next.body, next.deliveries),
        (&b"1"[..], Deliveries::Redelivered)
    );
    bench.wait_for_counts(18, 1).await;
}

/// SC-31, SC-34: otherwise a full queue would stay full, and refuse the copy forever.
#[tokio::test(start_paused = true)]
async fn another_message_is_delivered_in_place_of_one_that_is_kept_near_the_delivery_limit() {
    let mut bench = Bench::start(4).await;
    bench.demand.set(Demand {
        slots: 1,
        lookahead: 0,
    });
    let first = bench.delivered().await;
    bench.wait_for_counts(3, 1).await;
    let kept = bench.near_limit.keep(&bench.demand);
    let second = bench.delivered().await;
    bench.wait_for_counts(2, 2).await;
    drop(kept);
    bench.settle(&second, Settlement::Acknowledge);
    bench.wait_for_counts(2, 1).await;
    let _kept = bench.near_limit.keep(&bench.demand);
    let third = bench.delivered().await;
    bench.demand.set(Demand::default());
    // The consumers are cancelled one after the other.
    sleep(Duration::from_secs(1)).await;
    for delivery in [first, third] {
        bench.settle(&delivery, Settlement::Acknowledge);
    }
    sleep(Duration::from_secs(1)).await;
    // Without demand, none is delivered, whatever is kept.
    bench.wait_for_counts(1, 0).await;
}

/// SC-72: a delivery that waits to be requeued is not acknowledged along with later ones.
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_that_waits_for_a_consumer_to_be_cancelled() {
    let mut bench = Bench::start(4).await;
    bench.demand.set(Demand {
        slots: 4,
        lookahead: 0,
    });
    let mut deliveries = Vec::new();
    for _ in 0..4 {
        deliveries.push(bench.delivered().await);
    }
    bench.queue.answer_no_cancellation(true);
    bench.demand.set(Demand::default());
    bench.settle(&deliveries[1], Settlement::Requeue);
    for number in [0, 2, 3] {
        bench.settle(&deliveries[number], Settlement::Acknowledge);
    }
    bench.wait_for_counts(0, 1).await;
    bench.queue.answer_no_cancellation(false);
    bench.wait_for_counts(1, 0).await;
    assert_eq!(bench.queue.ready(), [1]);
}

/// SC-32
#[test]
fn consumer_timeout_is_left_out_once_the_queue_has_refused_it() {
    let needed = Some(Duration::from_hours(1));
    let mut timeout = ConsumerTimeout::new(needed);
    timeout.channel_closed("no queue 'asya-foo' in vhost '/'");
    assert_eq!(timeout.argument(), needed);
    timeout.channel_closed("invalid arg 'x-consumer-timeout' for queue 'asya-foo'");
    assert_eq!(timeout.argument(), None);
}

/// SC-34
#[test]
fn delivery_is_first_if_it_was_not_redelivered_or_none_before_it_failed() {
    for (redelivered, count, expected) in [
        (false, None, Deliveries::First),
        (false, Some(0), Deliveries::First),
        (true, None, Deliveries::Redelivered),
        (true, Some(0), Deliveries::First),
        (true, Some(3), Deliveries::Before(3)),
    ] {
        assert_eq!(deliveries(redelivered, count), expected);
    }
}
