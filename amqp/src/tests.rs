//! A connection to a scripted broker, including malformed frames.

mod fuzz;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::connection::Closing;
use super::content::{Content, LARGEST};
use super::encode::{Arguments, frame, of_channel, of_connection};
use super::method::{ContentMethod, Method};
use super::protocol::{id, kind};
use super::table::number_in;
use super::{Connection, Event, Login, OpenError, Purpose};

const LOGIN: Login<'static> = Login {
    user: "me",
    password: "p@ss",
    vhost: "/",
    product: "a program",
    name: "a name",
};

/// The broker's side.
struct Peer(DuplexStream, &'static str);

impl Peer {
    async fn send(&mut self, frames: &[u8]) {
        self.0.write_all(frames).await.expect("sent");
    }

    /// The next method, with its arguments.
    async fn method(&mut self) -> ((u16, u16), Vec<u8>) {
        loop {
            let (kind, payload) = self.frame().await;
            if kind == kind::METHOD {
                let number = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
                return ((number(0), number(2)), payload[4..].to_vec());
            }
        }
    }

    async fn frame(&mut self) -> (u8, Vec<u8>) {
        let kind = self.0.read_u8().await.expect("a kind");
        self.0.read_u16().await.expect("a channel");
        let mut payload = vec![0; self.0.read_u32().await.expect("a length") as usize];
        self.0.read_exact(&mut payload).await.expect("a payload");
        assert_eq!(
            self.0.read_u8().await.expect("an end"),
            super::protocol::FRAME_END
        );
        (kind, payload)
    }

    /// Performs the server side of the handshake.
    async fn welcome(&mut self) -> Vec<u8> {
        let mut header = [0; 8];
        self.0.read_exact(&mut header).await.expect("a header");
        assert_eq!(&header, b"AMQP\x00\x00\x09\x01");
        let capabilities = Arguments::default().entry_true("basic.nack");
        let properties = Arguments::default()
            .entry_table("capabilities", &capabilities)
            .entry_text("product", "RabbitMQ")
            .entry_text("version", self.1);
        let start = Arguments::default()
            .octet(0)
            .octet(9)
            .table(&properties)
            .long_text(b"AMQPLAIN PLAIN")
            .long_text(b"en_US");
        self.send(&of_connection(id::START, &start)).await;
        let (method, login) = self.method().await;
        assert_eq!(method, id::START_OK);
        self.send(&of_connection(
            id::TUNE,
            &Arguments::default().short(0).long(4096).short(60),
        ))
        .await;
        assert_eq!(self.method().await.0, id::TUNE_OK);
        assert_eq!(self.method().await.0, id::OPEN);
        self.send(&of_connection(
            id::OPEN_OK,
            &Arguments::default().short_text(""),
        ))
        .await;
        assert_eq!(self.method().await.0, id::CHANNEL_OPEN);
        self.send(&of_channel(
            id::CHANNEL_OPEN_OK,
            &Arguments::default().long_text(b""),
        ))
        .await;
        login
    }
}

async fn connected(purpose: Purpose) -> (Connection, Peer) {
    let (ours, theirs) = duplex(1 << 20);
    let mut peer = Peer(theirs, "3.10.8");
    let (connection, _) = tokio::join!(
        Connection::open(Box::new(ours), &LOGIN, purpose),
        peer.welcome()
    );
    (connection.expect("a connection"), peer)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// SC-21
#[tokio::test]
async fn the_version_of_the_broker_is_known_if_it_says_so() {
    for (version, expected) in [
        ("3.10.8", Some((3, 10))),
        ("4.3.0-beta.1", Some((4, 3))),
        ("unknown", None),
        ("", None),
    ] {
        let (ours, theirs) = duplex(1 << 20);
        let mut peer = Peer(theirs, version);
        let (connection, _) = tokio::join!(
            Connection::open(Box::new(ours), &LOGIN, Purpose::Consume),
            peer.welcome()
        );
        let connection = connection.expect("a connection");
        assert_eq!(connection.broker_version(), expected, "{version:?}");
    }
}

/// SC-19, SC-22, SC-29
#[tokio::test]
async fn the_client_announces_its_name_and_capabilities() {
    let (ours, theirs) = duplex(1 << 20);
    let mut peer = Peer(theirs, "3.10.8");
    let (_, login) = tokio::join!(
        Connection::open(Box::new(ours), &LOGIN, Purpose::Consume),
        peer.welcome()
    );
    for part in [
        "a name",
        "connection.blocked",
        "authentication_failure_close",
        "consumer_cancel_notify",
        "\0me\0p@ss",
    ] {
        assert!(contains(&login, part), "{part:?}");
    }
}

/// SC-20
#[tokio::test]
async fn a_refused_login_reports_the_brokers_reason() {
    let (ours, theirs) = duplex(1 << 20);
    let mut peer = Peer(theirs, "3.10.8");
    let refuse = async {
        let mut header = [0; 8];
        peer.0.read_exact(&mut header).await.expect("a header");
        let start = Arguments::default()
            .octet(0)
            .octet(9)
            .long_text(b"")
            .long_text(b"PLAIN")
            .long_text(b"en_US");
        peer.send(&of_connection(id::START, &start)).await;
        peer.method().await;
        let close = Arguments::default()
            .short(403)
            .short_text("ACCESS_REFUSED")
            .short(0)
            .short(0);
        peer.send(&of_connection(id::CLOSE, &close)).await;
        assert_eq!(peer.method().await.0, id::CLOSE_OK);
    };
    let (opened, ()) = tokio::join!(
        Connection::open(Box::new(ours), &LOGIN, Purpose::Consume),
        refuse
    );
    match opened.err() {
        Some(OpenError::Refused { code: 403, text }) => assert_eq!(text, "ACCESS_REFUSED"),
        other => panic!("{other:?}"),
    }
}

/// SC-23, SC-60
#[tokio::test]
async fn a_publication_is_persistent_mandatory_and_split_into_frames() {
    let (connection, mut peer) = connected(Purpose::Publish).await;
    assert_eq!(peer.method().await.0, id::SELECT);
    for size in [0, 1, 4088, 4089, 100_000] {
        let body: Bytes = (0..size).map(|index: u32| index.to_le_bytes()[0]).collect();
        connection.publish("", "asya-bar", "id-1", body.clone());
        let (method, arguments) = peer.method().await;
        assert_eq!(
            (method, arguments.last()),
            (id::PUBLISH, Some(&1)),
            "mandatory"
        );
        let (kind, header) = peer.frame().await;
        assert_eq!(kind, kind::HEADER);
        assert_eq!(header[4..12], u64::from(size).to_be_bytes());
        assert!(
            contains(&header, "\u{10}application/json\u{2}\u{4}id-1"),
            "persistent, with its id: {header:?}"
        );
        let mut received = Vec::new();
        while received.len() < body.len() {
            let (kind, part) = peer.frame().await;
            assert!(kind == kind::BODY && part.len() <= 4088);
            received.extend(part);
        }
        assert!(received == body, "{size}");
    }
}

/// SC-34, SC-85
#[tokio::test]
async fn a_delivery_is_reassembled_from_any_fragmentation() {
    let (mut connection, mut peer) = connected(Purpose::Consume).await;
    connection.consume("asya-foo", "c", 5, Some(Duration::from_mins(40)));
    assert_eq!(peer.method().await.0, id::QOS);
    let (method, arguments) = peer.method().await;
    assert!(
        method == id::CONSUME && contains(&arguments, "x-consumer-timeoutl\0\0\0\0\0\u{24}"),
        "{arguments:?}"
    );
    for size in [0_usize, 3, 5000, 20_000] {
        let body: Vec<u8> = (0..size).map(|index| index.to_le_bytes()[0]).collect();
        let deliver = Arguments::default()
            .short_text("c")
            .long_long(7)
            .octet(1)
            .short_text("")
            .short_text("asya-foo");
        peer.send(&of_channel(id::DELIVER, &deliver)).await;
        let headers = Arguments::default()
            .entry_text("other", "x")
            .entry_number("x-delivery-count", 2);
        let header = Arguments::default()
            .short(60)
            .short(0)
            .long_long(size as u64)
            .short(1 << 13)
            .table(&headers);
        peer.send(&raw(kind::HEADER, &header)).await;
        for part in body.chunks(1500) {
            peer.send(&frame(kind::BODY, 1, part)).await;
        }
        let expected = Event::Delivered {
            consumer: "c".to_owned(),
            tag: 7,
            redelivered: true,
            count: Some(2),
            body: body.into(),
            size,
        };
        assert!(connection.event().await == expected, "{size}");
    }
}

/// SC-83, SC-84
#[tokio::test]
async fn only_the_beginning_of_a_delivery_above_the_limit_is_kept() {
    for (size, kept) in [
        (100_000, 100_000),
        (100_001, 64 << 10),
        (1_000_000, 64 << 10),
    ] {
        let (ours, theirs) = duplex(64 << 10);
        let mut peer = Peer(theirs, "4.0.5");
        let opened = Connection::open_limited(Box::new(ours), &LOGIN, Purpose::Consume, 100_000);
        let (connection, _) = tokio::join!(opened, peer.welcome());
        let mut connection = connection.expect("a connection");
        let body: Vec<u8> = (0..size)
            .map(|index: usize| index.to_le_bytes()[1])
            .collect();
        let deliver = Arguments::default()
            .short_text("c")
            .long_long(7)
            .octet(0)
            .short_text("")
            .short_text("asya-foo");
        let header = Arguments::default()
            .short(60)
            .short(0)
            .long_long(size as u64)
            .short(0);
        let send = async {
            peer.send(&of_channel(id::DELIVER, &deliver)).await;
            peer.send(&raw(kind::HEADER, &header)).await;
            for part in body.chunks(4000) {
                peer.send(&frame(kind::BODY, 1, part)).await;
            }
        };
        let (event, ()) = tokio::join!(connection.event(), send);
        let expected = Event::Delivered {
            consumer: "c".to_owned(),
            tag: 7,
            redelivered: false,
            count: None,
            body: body[..kept].to_vec().into(),
            size,
        };
        assert!(event == expected, "{size}");
    }
}

fn raw(kind: u8, arguments: &Arguments) -> Vec<u8> {
    // A method's payload in a frame of another type: the bytes that follow class and method are the same.
    let framed = of_channel((0, 0), arguments);
    let payload = &framed[11..framed.len() - 1];
    frame(kind, 1, payload)
}

/// SC-33
#[tokio::test]
async fn closing_waits_until_the_broker_has_processed_everything_sent() {
    let (connection, mut peer) = connected(Purpose::Consume).await;
    connection.acknowledge(1, false);
    connection.requeue(2);
    connection.reject(3, true);
    let broker = async {
        for (expected, answer) in [
            (id::CHANNEL_CLOSE, Some(id::CHANNEL_CLOSE_OK)),
            (id::CLOSE, Some(id::CLOSE_OK)),
        ] {
            let mut method = peer.method().await.0;
            while matches!(method, id::ACK | id::NACK | id::REJECT) {
                method = peer.method().await.0;
            }
            assert_eq!(method, expected);
            let answer = answer.expect("an answer");
            let frame = if answer == id::CLOSE_OK {
                of_connection
            } else {
                of_channel
            };
            peer.send(&frame(answer, &Arguments::default())).await;
        }
    };
    let (closing, ()) = tokio::join!(connection.close(), broker);
    assert_eq!(closing, Closing::InOrder);
}

/// SC-22
#[tokio::test(start_paused = true)]
async fn heartbeats_are_sent_and_a_silent_broker_is_detected() {
    let (mut connection, mut peer) = connected(Purpose::Consume).await;
    let started = tokio::time::Instant::now();
    assert_eq!(peer.frame().await, (kind::HEARTBEAT, Vec::new()));
    assert_eq!(started.elapsed(), Duration::from_secs(15));
    let event = connection.event().await;
    assert!(
        matches!(&event, Event::Lost(why) if why.contains("silent")),
        "{event:?}"
    );
    assert_eq!(started.elapsed(), Duration::from_mins(1));
}

/// SC-30, SC-21
#[tokio::test]
async fn closes_by_the_broker_report_their_reason() {
    let (mut connection, mut peer) = connected(Purpose::Consume).await;
    peer.send(&of_connection(
        id::BLOCKED,
        &Arguments::default().short_text("low on memory"),
    ))
    .await;
    assert_eq!(
        connection.event().await,
        Event::Blocked("low on memory".to_owned())
    );
    let close = Arguments::default()
        .short(406)
        .short_text("too large")
        .short(0)
        .short(0);
    peer.send(&of_channel(id::CHANNEL_CLOSE, &close)).await;
    assert_eq!(
        connection.event().await,
        Event::ChannelClosed {
            code: 406,
            text: "too large".to_owned()
        }
    );
    assert_eq!(peer.method().await.0, id::CHANNEL_CLOSE_OK);
    peer.send(&of_connection(id::CLOSE, &close)).await;
    assert_eq!(peer.method().await.0, id::CLOSE_OK);
    let event = connection.event().await;
    assert_eq!(
        event,
        Event::Lost("the broker closed the connection: 406 too large".to_owned())
    );
}

/// SC-100
#[tokio::test]
async fn malformed_frames_end_only_the_connection() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let (mut connection, mut peer) = connected(Purpose::Consume).await;
        let mut bytes = of_channel(
            id::DELIVER,
            &Arguments::default().short_text("c").long_long(7).octet(1),
        );
        for _ in 0..3 {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        peer.send(&bytes).await;
        drop(peer);
        while !matches!(connection.event().await, Event::Lost(_)) {}
    }
}

/// SC-100
#[test]
fn random_bytes_never_panic() {
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..50_000 {
        let bytes: Vec<u8> = (0..random.usize(0..40)).map(|_| random.u8(..)).collect();
        let _ = Method::decode(&bytes);
        let _ = number_in(&bytes, "x-delivery-count");
        let mut content = Content::Announced(ContentMethod::Return {
            exchange: String::new(),
            key: String::new(),
        });
        if content.header(&bytes, LARGEST).is_ok() {
            let _ = content.body(BytesMut::from(&bytes[..]));
        }
    }
}

/// A queue is counted and inspected, and a message keeps its properties when it is published again.
#[tokio::test]
async fn queue_is_counted_and_looked_at() {
    let (mut connection, mut peer) = connected(Purpose::Publish).await;
    assert_eq!(peer.method().await.0, id::SELECT);
    connection.count("work");
    assert_eq!(peer.method().await.0, id::DECLARE);
    let counted = Arguments::default().short_text("work").long(7).long(2);
    peer.send(&of_channel(id::DECLARE_OK, &counted)).await;
    let expected = Event::Counted {
        messages: 7,
        consumers: 2,
    };
    assert_eq!(connection.event().await, expected);

    connection.get("work");
    assert_eq!(peer.method().await.0, id::GET);
    let got = Arguments::default()
        .long_long(9)
        .octet(1)
        .short_text("")
        .short_text("work")
        .long(6);
    let header = Arguments::default()
        .short(60)
        .short(0)
        .long_long(2)
        .short(1 << 12)
        .octet(2)
        .into_bytes();
    peer.send(&of_channel(id::GET_OK, &got)).await;
    peer.send(&frame(kind::HEADER, 1, &header)).await;
    peer.send(&frame(kind::BODY, 1, b"{}")).await;
    let Event::Got {
        tag: 9,
        properties,
        body,
    } = connection.event().await
    else {
        panic!("no message");
    };
    connection.republish("other", &properties, body);
    let (method, arguments) = peer.method().await;
    assert_eq!(method, id::PUBLISH);
    assert!(contains(&arguments, "other"));
    assert_eq!(peer.frame().await, (kind::HEADER, header));
    assert_eq!(peer.frame().await, (kind::BODY, b"{}".to_vec()));

    connection.get("work");
    assert_eq!(peer.method().await.0, id::GET);
    let nothing = Arguments::default().short_text("");
    peer.send(&of_channel(id::GET_EMPTY, &nothing)).await;
    assert_eq!(connection.event().await, Event::GotNothing);
}
