//! Consumers that a scripted broker cancels.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time;

use super::{Settlements, session};
use crate::broker::rabbitmq::consuming::MIN_CONSUMER_TIMEOUT;
use crate::broker::rabbitmq::testing::{frame, method, settings};
use crate::broker::{Delivery, Demand, Event, Settlement};
use crate::config::RabbitMqConfig;

const QUEUE: &[u8] = b"\x08asya-foo";
const CONSUMER: &[u8] = b"\x06asya-1";

/// A method, as (class, method).
type Method = (u16, u16);
const OPEN: Method = (10, 40);
const CHANNEL_OPEN: Method = (20, 10);
const CHANNEL_CLOSE: Method = (20, 40);
const DECLARE: Method = (50, 10);
const QOS: Method = (60, 10);
const CONSUME: Method = (60, 20);
const ACK: Method = (60, 80);

/// A session, and the broker that it connects to.
struct Fixture {
    version: &'static str,
    listener: TcpListener,
    events: mpsc::UnboundedReceiver<Event>,
    settlements: Settlements,
    demand: watch::Sender<Demand>,
    session: JoinHandle<()>,
}

impl Fixture {
    async fn start(version: &'static str) -> Self {
        Self::with_slots(version, 1).await
    }

    async fn with_slots(version: &'static str, slots: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let settings = RabbitMqConfig {
            host: "127.0.0.1".to_owned(),
            port,
            ..settings()
        };
        let (demand, wanted) = watch::channel(Demand {
            slots,
            lookahead: 0,
        });
        let (session, settlements, events) = session(settings, wanted);
        Self {
            version,
            listener,
            events,
            settlements,
            demand,
            session: tokio::spawn(session.run()),
        }
    }

    /// Accepts a connection, and opens its channel.
    async fn connection(&self) -> Peer {
        let accepted = time::timeout(Duration::from_secs(10), self.listener.accept()).await;
        let (stream, _) = accepted.expect("in time").expect("a connection");
        let mut peer = Peer(stream);
        peer.0.read_exact(&mut [0; 8]).await.expect("a header");
        let properties = [&b"\x07versionS\0\0\0\x05"[..], self.version.as_bytes()].concat();
        let start = [
            b"\0\x09\0\0\0\x12",
            &properties[..],
            b"\0\0\0\x05PLAIN\0\0\0\x05en_US",
        ];
        peer.say(0, (10, 10), &start.concat()).await;
        peer.hears((10, 11)).await;
        peer.say(0, (10, 30), &[0; 8]).await;
        peer.hears(OPEN).await;
        peer.say(0, (10, 41), b"\0").await;
        peer.hears(CHANNEL_OPEN).await;
        peer.say(1, (20, 11), &[0; 4]).await;
        peer
    }

    /// Accepts a connection that starts a consumer.
    async fn consumer(&self) -> Peer {
        let mut peer = self.connection().await;
        peer.hears(CONSUME).await;
        peer.say(1, (60, 11), b"").await;
        peer.say(1, (60, 21), CONSUMER).await;
        peer
    }

    /// Delivers a message, waits until it is this old, and cancels its consumer.
    async fn cancelled(&mut self, age: Duration) -> (Peer, Delivery) {
        let mut peer = self.consumer().await;
        peer.deliver().await;
        let delivery = loop {
            let event = self.events.recv().await.expect("a session");
            if let Event::Delivered(delivery) = event {
                break delivery;
            }
        };
        time::pause();
        time::advance(age).await;
        time::resume();
        peer.say(1, (60, 30), &[CONSUMER, b"\x01"].concat()).await;
        (peer, delivery)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.session.abort();
    }
}

/// The broker's end of a connection.
struct Peer(TcpStream);

impl Peer {
    async fn write(&mut self, frame: &[u8]) {
        self.0.write_all(frame).await.expect("a sidecar");
    }

    async fn say(&mut self, channel: u16, (class, number): Method, arguments: &[u8]) {
        self.write(&method(channel, class, number, arguments)).await;
    }

    /// Delivers a message of two bytes.
    async fn deliver(&mut self) {
        let deliver = [CONSUMER, &1_u64.to_be_bytes(), b"\0", b"\0", QUEUE].concat();
        self.say(1, (60, 60), &deliver).await;
        let header = [&[0, 60, 0, 0][..], &2_u64.to_be_bytes(), &[0, 0]].concat();
        self.write(&frame(2, 1, &header)).await;
        self.write(&frame(3, 1, b"{}")).await;
    }

    /// Waits until the sidecar closes the connection.
    async fn hears_the_end(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).await.expect("an end");
    }

    /// Waits for a method, skipping any before it.
    async fn hears(&mut self, wanted: Method) -> Vec<u8> {
        loop {
            let kind = self.0.read_u8().await.expect("a sidecar");
            self.0.read_u16().await.expect("a channel");
            let length = self.0.read_u32().await.expect("a length");
            let mut rest = vec![0; length as usize + 1];
            self.0.read_exact(&mut rest).await.expect("a payload");
            // A heartbeat has no payload.
            rest.resize(rest.len().max(4), 0);
            let id = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
            match (id(0), id(2)) {
                found if kind != 1 || found != wanted && found != DECLARE => {}
                found => {
                    assert_eq!(found, wanted);
                    return rest;
                }
            }
        }
    }
}

/// SC-21, SC-74: since RabbitMQ 4.3, a quorum queue takes back deliveries that are not settled in time, and cancels the
/// consumer.
#[tokio::test]
async fn delivery_is_lost_if_its_consumer_is_cancelled_and_the_queue_exists() {
    let mut fixture = Fixture::start("4.3.6").await;
    let (mut peer, delivery) = fixture.cancelled(MIN_CONSUMER_TIMEOUT).await;
    let mut lookup = fixture.connection().await;
    lookup.hears(DECLARE).await;
    assert!(!delivery.receipt.is_lost(), "nothing is known yet");
    lookup.say(1, (50, 11), &[QUEUE, &[0; 8]].concat()).await;
    delivery.receipt.lost().await;
    peer.hears(CHANNEL_CLOSE).await;
    drop(peer);
    fixture.consumer().await;
}

/// SC-21: messages of a deleted queue are not redelivered.
#[tokio::test]
async fn delivery_is_kept_if_its_consumer_is_cancelled_and_the_queue_does_not_exist() {
    let mut fixture = Fixture::start("4.3.6").await;
    let (_peer, delivery) = fixture.cancelled(MIN_CONSUMER_TIMEOUT).await;
    let mut lookup = fixture.connection().await;
    lookup.hears(DECLARE).await;
    lookup.say(1, CHANNEL_CLOSE, b"\x01\x94\0\0\0\0\0").await;
    lookup.hears_the_end().await;
    assert!(!delivery.receipt.is_lost());
    let settled = (delivery.receipt.clone(), Settlement::Acknowledge);
    fixture.settlements.send(settled).expect("a session");
    fixture.consumer().await;
    assert!(!delivery.receipt.is_lost(), "it is not redelivered");
}

/// SC-21: a queue that was deleted and recreated exists, too, but does not have the message any more.
#[tokio::test]
async fn delivery_is_kept_if_its_consumer_is_cancelled_before_it_can_have_timed_out() {
    for (version, age) in [
        ("4.3.6", MIN_CONSUMER_TIMEOUT / 2),
        ("4.2.9", MIN_CONSUMER_TIMEOUT),
    ] {
        let mut fixture = Fixture::start(version).await;
        let (_peer, delivery) = fixture.cancelled(age).await;
        assert!(!delivery.receipt.is_lost());
        let settled = (delivery.receipt.clone(), Settlement::Acknowledge);
        fixture.settlements.send(settled).expect("a session");
        // The next connection starts a consumer, so it is not the lookup.
        fixture.consumer().await;
    }
}

/// SC-21, SC-31: once the queue is recreated, a long call must not keep the other slots idle.
#[tokio::test]
async fn other_slots_consume_anew_while_a_message_of_the_deleted_queue_is_in_flight() {
    let mut fixture = Fixture::with_slots("4.2.9", 3).await;
    let (mut old, delivery) = fixture.cancelled(Duration::ZERO).await;
    let mut new = fixture.connection().await;
    let prefetch = |qos: Vec<u8>| u16::from_be_bytes([qos[8], qos[9]]);
    assert_eq!(prefetch(new.hears(QOS).await), 2, "one is in flight");
    new.hears(CONSUME).await;
    new.say(1, (60, 11), b"").await;
    new.say(1, (60, 21), b"\x06asya-1").await;
    assert!(!delivery.receipt.is_lost());
    let settled = (delivery.receipt.clone(), Settlement::Acknowledge);
    fixture.settlements.send(settled).expect("a session");
    old.hears(ACK).await;
    old.hears(CHANNEL_CLOSE).await;
    assert_eq!(prefetch(new.hears(QOS).await), 1);
    new.hears(CONSUME).await;
    assert!(!delivery.receipt.is_lost());
}

/// SC-21, SC-72: messages delivered to the other consumer would be held while nothing else is processed.
#[tokio::test]
async fn connection_without_messages_is_closed_if_the_broker_cancels_one_of_its_consumers() {
    let fixture = Fixture::start("4.3.6").await;
    let mut old = fixture.consumer().await;
    let more = Demand {
        slots: 2,
        lookahead: 0,
    };
    fixture.demand.send(more).expect("a session");
    old.hears(CONSUME).await;
    old.say(1, (60, 11), b"").await;
    old.say(1, (60, 21), b"\x06asya-2").await;
    old.say(1, (60, 30), &[CONSUMER, b"\x01"].concat()).await;
    let _new = fixture.consumer().await;
    let closed = time::timeout(Duration::from_secs(10), old.hears(CHANNEL_CLOSE)).await;
    closed.expect("in time");
}

/// SC-16, SC-20: with a missing queue, every attempt would look successful for a moment.
#[tokio::test]
async fn connection_is_reported_once_it_consumes_or_has_no_reason_to() {
    let mut fixture = Fixture::start("4.2.9").await;
    let mut peer = fixture.connection().await;
    peer.hears(CONSUME).await;
    peer.say(1, CHANNEL_CLOSE, b"\x01\x94\0\0\0\0\0").await;
    let mut event = fixture.events.recv().await.expect("a session");
    assert!(matches!(event, Event::Disconnected), "{event:?}");
    let mut peer = fixture.consumer().await;
    event = fixture.events.recv().await.expect("a session");
    assert!(matches!(event, Event::Connected), "{event:?}");
    fixture.demand.send(Demand::default()).expect("a session");
    peer.hears((60, 30)).await;
    drop(peer);
    event = fixture.events.recv().await.expect("a session");
    assert!(matches!(event, Event::Disconnected), "{event:?}");
    let _peer = fixture.connection().await;
    event = fixture.events.recv().await.expect("a session");
    assert!(matches!(event, Event::Connected), "{event:?}");
}

/// SC-21: its results must still be sent.
#[tokio::test]
async fn delivery_of_a_deleted_queue_is_kept_if_the_connection_is_lost_as_well() {
    let mut fixture = Fixture::start("4.2.9").await;
    let (old, delivery) = fixture.cancelled(Duration::ZERO).await;
    let new = fixture.connection().await;
    drop((old, new));
    let mut next = fixture.connection().await;
    assert!(!delivery.receipt.is_lost());
    let settled = (delivery.receipt.clone(), Settlement::Acknowledge);
    fixture.settlements.send(settled).expect("a session");
    next.hears(CONSUME).await;
}
