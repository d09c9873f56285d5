//! A publishing connection to a scripted broker, with a virtual clock.

use std::time::Duration;

use asya_amqp::Purpose;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{CONFIRM_TIMEOUT, Publisher, Request};
use crate::broker::rabbitmq::connect::Connector;
use crate::broker::rabbitmq::testing::{BUFFER, connected, frame, method, settings};
use crate::broker::{Origin, Publication, Refusal};
use crate::config::Publish;
use crate::metrics::BrokerMetrics;

/// A publisher, and the sender of its requests.
fn publisher() -> (Publisher, mpsc::UnboundedSender<Request>) {
    let settings = settings();
    let metrics = BrokerMetrics::default();
    let closing = CancellationToken::new();
    let connector = Connector::new(settings.clone(), "foo", None, closing, metrics.clone());
    let (requests, to_publish) = mpsc::unbounded_channel();
    let (events, _) = mpsc::unbounded_channel();
    let publisher = Publisher::new(connector, &settings, to_publish, events, metrics);
    (publisher, requests)
}

fn request(
    size: usize,
) -> (
    Request,
    oneshot::Receiver<Result<(), crate::broker::Refusal>>,
) {
    let (reply, result) = oneshot::channel();
    let publication = Publication {
        queue: "asya-bar".to_owned(),
        id: "1".to_owned(),
        body: vec![b'x'; size].into(),
        origin: Origin::default(),
        index: 0,
    };
    let request = Request {
        publication,
        reply,
        must_reach_queue: false,
    };
    (request, result)
}

/// For this long, reads at most `BUFFER` bytes a second and sends heartbeats.
async fn read_slowly(broker: &mut DuplexStream, time: Duration) {
    let until = Instant::now() + time;
    let mut buffer = vec![0; BUFFER];
    while Instant::now() < until {
        let _ = timeout(Duration::from_millis(1), broker.read(&mut buffer)).await;
        let _ = broker.write_all(&frame(8, 0, &[])).await;
        sleep(Duration::from_secs(1)).await;
    }
}

/// SC-28, SC-85: it would be sent again forever.
#[tokio::test(start_paused = true)]
async fn publication_that_takes_long_to_reach_the_broker_is_not_sent_again() {
    let (connection, mut broker) = connected(Purpose::Publish).await;
    let (mut publisher, requests) = publisher();
    let (request, result) = request(100 * BUFFER);
    requests.send(request).expect("a publisher");
    let confirmed = async {
        read_slowly(&mut broker, Duration::from_mins(2)).await;
        let ack = [&1_u64.to_be_bytes()[..], &[0]].concat();
        let sent = broker.write_all(&method(1, 60, 80, &ack)).await;
        sent.expect("a connection");
        result.await
    };
    tokio::select! {
        biased;
        confirmed = confirmed => assert_eq!(confirmed, Ok(Ok(()))),
        why = publisher.serve(connection) => panic!("{why:?}"),
    }
}

/// SC-28
#[tokio::test(start_paused = true)]
async fn broker_that_confirms_nothing_is_left_half_a_minute_after_it_has_everything() {
    for size in [10, 10 * BUFFER] {
        let (connection, mut broker) = connected(Purpose::Publish).await;
        let (mut publisher, requests) = publisher();
        let (request, _result) = request(size);
        requests.send(request).expect("a publisher");
        let started = Instant::now();
        tokio::select! {
            why = publisher.serve(connection) => {
                assert_eq!(why.as_deref(), Some("no publication was confirmed for 30 s"));
            }
            () = read_slowly(&mut broker, Duration::from_mins(2)) => panic!("not left"),
        }
        let late = started.elapsed().saturating_sub(CONFIRM_TIMEOUT);
        assert!(late < Duration::from_secs(12), "{late:?}");
    }
}

/// The arguments of the next method of this class and id that reaches the broker.
async fn received(broker: &mut DuplexStream, class: u16, number: u16) -> Vec<u8> {
    loop {
        let kind = broker.read_u8().await.expect("a frame");
        broker.read_u16().await.expect("a channel");
        let length = broker.read_u32().await.expect("a length");
        let mut payload = vec![0; usize::try_from(length).expect("a small frame")];
        broker.read_exact(&mut payload).await.expect("a payload");
        broker.read_u8().await.expect("an end");
        let wanted = [class.to_be_bytes(), number.to_be_bytes()].concat();
        if kind == 1 && payload.starts_with(&wanted) {
            return payload.split_off(4);
        }
    }
}

/// The class and id of the next method that reaches the broker.
async fn next_method(broker: &mut DuplexStream) -> (u16, u16) {
    loop {
        let kind = broker.read_u8().await.expect("a frame");
        broker.read_u16().await.expect("a channel");
        let length = broker.read_u32().await.expect("a length");
        let mut rest = vec![0; usize::try_from(length).expect("a small frame") + 1];
        broker.read_exact(&mut rest).await.expect("a payload");
        if kind == 1 {
            let number = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
            return (number(0), number(2));
        }
    }
}

/// SC-30: RabbitMQ closes the connection if something is published on a channel that is not open.
#[tokio::test]
async fn nothing_is_published_after_the_channel_was_closed_until_it_is_open_again() {
    let (connection, mut broker) = greeted().await;
    let (mut publisher, requests) = publisher();
    let send = |size| {
        let (request, result) = request(size);
        requests.send(request).expect("a publisher");
        result
    };
    let script = async {
        let (small, large) = (send(10), send(20));
        for _ in 0..2 {
            published(&mut broker).await;
        }
        let ack = [&1_u64.to_be_bytes()[..], &[0]].concat();
        let close = [&406_u16.to_be_bytes()[..], &[0], &[0; 4]].concat();
        let both = [method(1, 60, 80, &ack), method(1, 20, 40, &close)].concat();
        broker.write_all(&both).await.expect("a connection");
        // Let the connection read both before the publisher sees the next request.
        yield_now().await;
        let next = send(10);
        assert_eq!(next_method(&mut broker).await, (20, 41), "close-ok");
        assert_eq!(next_method(&mut broker).await, (20, 10), "open");
        let opened = broker.write_all(&method(1, 20, 11, &[0; 4])).await;
        opened.expect("a connection");
        published(&mut broker).await;
        confirm(&mut broker, 1).await;
        assert_eq!(small.await, Ok(Ok(())));
        assert_eq!(large.await, Ok(Err(Refusal::TooLarge)));
        assert_eq!(next.await, Ok(Ok(())));
    };
    tokio::select! {
        biased;
        () = script => {}
        why = publisher.serve(connection) => panic!("{why:?}"),
    }
}

/// The exchange and routing key of the next publication.
async fn published(broker: &mut DuplexStream) -> (String, String) {
    let arguments = received(broker, 60, 40).await;
    let text = |at: usize| {
        let end = at + 1 + usize::from(arguments[at]);
        (
            String::from_utf8_lossy(&arguments[at + 1..end]).into_owned(),
            end,
        )
    };
    let (exchange, end) = text(2);
    (exchange, text(end).0)
}

/// A connection, and a broker that has read its protocol header.
async fn greeted() -> (asya_amqp::Connection, DuplexStream) {
    let (connection, mut broker) = connected(Purpose::Publish).await;
    broker.read_exact(&mut [0; 8]).await.expect("a greeting");
    (connection, broker)
}

/// Closes the channel with this reply code, and accepts its reopening.
async fn close_channel(broker: &mut DuplexStream, code: u16) {
    let close = [&code.to_be_bytes()[..], &[0], &[0; 4]].concat();
    let closed = broker.write_all(&method(1, 20, 40, &close)).await;
    closed.expect("a connection");
    received(broker, 20, 10).await;
    let opened = broker.write_all(&method(1, 20, 11, &[0; 4])).await;
    opened.expect("a connection");
}

async fn confirm(broker: &mut DuplexStream, number: u64) {
    let ack = [&number.to_be_bytes()[..], &[0]].concat();
    let sent = broker.write_all(&method(1, 60, 80, &ack)).await;
    sent.expect("a connection");
}

fn at(exchange: &str, key: &str) -> (String, String) {
    (exchange.to_owned(), key.to_owned())
}

/// SC-25: a permission that is missing for a moment must not change how messages are sent for good.
#[tokio::test]
async fn default_exchange_is_used_again_on_the_next_connection() {
    let (mut publisher, requests) = publisher();
    for _ in 0..2 {
        let (connection, mut broker) = greeted().await;
        let script = async {
            for number in 1..3 {
                let (request, result) = request(10);
                requests.send(request).expect("a publisher");
                if number == 1 {
                    assert_eq!(published(&mut broker).await, at("", "asya-bar"));
                    close_channel(&mut broker, 403).await;
                }
                assert_eq!(published(&mut broker).await, at("asya", "bar"));
                confirm(&mut broker, number).await;
                assert_eq!(result.await, Ok(Ok(())));
            }
        };
        tokio::select! {
            biased;
            () = script => {}
            why = publisher.serve(connection) => panic!("{why:?}"),
        }
    }
}

/// SC-24, SC-26, SC-34: an exchange may route a copy to queues other than the one in which its source is acknowledged.
#[tokio::test]
async fn what_must_reach_its_queue_goes_to_the_default_exchange_or_is_refused() {
    let (connection, mut broker) = greeted().await;
    let (mut publisher, requests) = publisher();
    publisher.configured = Publish::Exchange;
    let to_its_queue = || {
        let (mut request, result) = request(10);
        request.must_reach_queue = true;
        requests.send(request).expect("a publisher");
        result
    };
    let script = async {
        let result = to_its_queue();
        assert_eq!(published(&mut broker).await, at("", "asya-bar"));
        confirm(&mut broker, 1).await;
        assert_eq!(result.await, Ok(Ok(())));
        let result = to_its_queue();
        assert_eq!(published(&mut broker).await, at("", "asya-bar"));
        close_channel(&mut broker, 403).await;
        assert!(matches!(result.await, Ok(Err(Refusal::Forbidden(_)))));
        let result = to_its_queue();
        assert!(matches!(result.await, Ok(Err(Refusal::Forbidden(_)))));
        let (request, result) = request(10);
        requests.send(request).expect("a publisher");
        assert_eq!(published(&mut broker).await, at("asya", "bar"));
        confirm(&mut broker, 1).await;
        assert_eq!(result.await, Ok(Ok(())));
    };
    tokio::select! {
        biased;
        () = script => {}
        why = publisher.serve(connection) => panic!("{why:?}"),
    }
}
