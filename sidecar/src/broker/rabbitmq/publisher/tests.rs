//! A publishing connection to a scripted broker, with a virtual clock.

use std::time::Duration;

use asya_amqp::Purpose;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{CONFIRM_TIMEOUT, Publisher, Request};
use crate::broker::rabbitmq::connect::Connector;
use crate::broker::rabbitmq::testing::{BUFFER, connected, frame, method, settings};
use crate::broker::{Origin, Publication, Refusal};
use crate::config::Publish;
use crate::metrics::BrokerMetrics;

/// A publisher, and the channel for its requests.
fn publisher() -> (Publisher, mpsc::UnboundedSender<Request>) {
    let settings = settings();
    let metrics = BrokerMetrics::default();
    let closing = CancellationToken::new();
    let connector = Connector::new(settings.clone(), "foo", closing, metrics.clone());
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

/// Reads for this long, at most `BUFFER` bytes a second, and sends heartbeats.
async fn read_slowly(broker: &mut DuplexStream, time: Duration) {
    let until = Instant::now() + time;
    let mut buffer = vec![0; BUFFER];
    while Instant::now() < until {
        let _ = timeout(Duration::from_millis(1), broker.read(&mut buffer)).await;
        let _ = broker.write_all(&frame(8, 0, &[])).await;
        sleep(Duration::from_secs(1)).await;
    }
}

/// SC-28, SC-85: it would be sent again for ever.
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

/// SC-24, SC-26: an exchange may route a copy to others than the queue that its source would be acknowledged in.
#[tokio::test]
async fn what_must_reach_its_queue_is_refused_on_the_topic_exchange() {
    let (connection, mut broker) = connected(Purpose::Publish).await;
    let (mut publisher, requests) = publisher();
    publisher.way = Publish::Exchange;
    let (mut request, result) = request(10);
    request.must_reach_queue = true;
    requests.send(request).expect("a publisher");
    tokio::select! {
        biased;
        result = result => assert!(matches!(result, Ok(Err(Refusal::Forbidden(_)))), "{result:?}"),
        why = publisher.serve(connection) => panic!("{why:?}"),
    }
    let mut sent = Vec::new();
    broker.read_to_end(&mut sent).await.expect("the end");
    assert!(!sent.windows(5).any(|part| part == b"xxxxx"), "published");
}
