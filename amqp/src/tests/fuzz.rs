//! Anything that a broker, or another program on its port, may send (SC-21, SC-100).

use asya_fuzz::check;
use asya_fuzz::input::damaged;
use asya_fuzz::proptest::collection::vec;
use asya_fuzz::proptest::prelude::{any, prop_assert, prop_assert_eq, prop_oneof};
use asya_fuzz::proptest::sample::select;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;

use super::super::content::LARGEST;
use super::super::encode::{Arguments, frame, of_channel, of_connection};
use super::super::method::Event;
use super::super::protocol::{id, kind};
use super::super::reader::Reader;
use super::super::{Connection, Purpose};
use super::{LOGIN, raw};

const FRAME_MAX: usize = 4096;

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true);
    runtime.build().expect("a runtime")
}

/// The events that the reader makes of the bytes; the last one is the loss of the connection.
fn events_in(runtime: &Runtime, bytes: &[u8]) -> Vec<Event> {
    runtime.block_on(async {
        let (events, mut found) = unbounded_channel();
        let (answers, _written) = unbounded_channel();
        let reader = Reader {
            stream: bytes,
            frame_max: FRAME_MAX,
            largest: LARGEST,
            silence: std::time::Duration::from_mins(1),
            events,
            answers,
        };
        reader.run().await;
        let mut all = Vec::new();
        while let Ok(event) = found.try_recv() {
            all.push(event);
        }
        all
    })
}

/// A delivery whose body frames have this size.
fn delivery(tag: u64, count: Option<i64>, body: &[u8], piece: usize) -> Vec<u8> {
    let deliver = Arguments::default()
        .short_text("asya-1")
        .long_long(tag)
        .octet(1)
        .short_text("")
        .short_text("asya-foo");
    let mut frames = of_channel(id::DELIVER, &deliver);
    let header = Arguments::default()
        .short(60)
        .short(0)
        .long_long(body.len() as u64);
    let header = match count {
        Some(count) => {
            let others = Arguments::default()
                .entry_text("x", "ü")
                .entry_number("x-delivery-count", count);
            header.short(1 << 13).table(&others)
        }
        None => header.short(0),
    };
    frames.extend(raw(kind::HEADER, &header));
    for part in body.chunks(piece) {
        frames.extend(frame(kind::BODY, 1, part));
    }
    frames
}

/// SC-34, SC-60, SC-100
#[test]
fn deliveries_are_the_same_however_they_are_split_into_frames() {
    let runtime = runtime();
    let one = (
        any::<u64>(),
        any::<Option<i64>>(),
        vec(any::<u8>(), 0..9_000),
        1..4_000_usize,
    );
    check(&vec(one, 0..5), |all| {
        let stream = all.iter().flat_map(|(tag, count, body, piece)| {
            [
                delivery(*tag, *count, body, *piece),
                frame(kind::HEARTBEAT, 0, &[]),
            ]
            .concat()
        });
        let mut events = events_in(&runtime, &stream.collect::<Vec<_>>());
        prop_assert!(matches!(events.pop(), Some(Event::Lost(_))));
        let expected = all
            .into_iter()
            .map(|(tag, count, body, _)| Event::Delivered {
                consumer: "asya-1".to_owned(),
                tag,
                redelivered: true,
                count: count.and_then(|count| u64::try_from(count).ok()),
                size: body.len(),
                body: body.into(),
            });
        prop_assert_eq!(events, expected.collect::<Vec<_>>());
        Ok(())
    });
}

/// Streams of valid frames.
fn examples() -> Vec<Vec<u8>> {
    let returned = Arguments::default()
        .short(312)
        .short_text("NO_ROUTE")
        .short_text("")
        .short_text("asya-bar");
    let close = Arguments::default()
        .short(404)
        .short_text("NOT_FOUND")
        .short(60)
        .short(20);
    let confirmed = Arguments::default().long_long(7).octet(1);
    let texts = Arguments::default().short_text("asya-1");
    let all = [
        delivery(1, Some(3), b"{\"id\":\"1\"}", 4),
        of_channel(id::RETURN, &returned),
        of_channel(id::ACK, &confirmed),
        of_channel(id::NACK, &confirmed),
        of_channel(id::CONSUME_OK, &texts),
        of_channel(id::CANCEL, &texts),
        of_channel(id::FLOW, &Arguments::default().octet(0)),
        of_connection(id::BLOCKED, &texts),
        of_connection(id::UNBLOCKED, &Arguments::default()),
        of_channel(id::CHANNEL_CLOSE, &close),
        of_connection(id::CLOSE, &close),
    ];
    let together = all.concat();
    all.into_iter().chain([together]).collect()
}

/// SC-21, SC-100
#[test]
fn any_bytes_end_in_one_lost_connection() {
    let runtime = runtime();
    let bytes = prop_oneof![4 => damaged(examples()), 1 => vec(any::<u8>(), 0..64)];
    check(&vec(bytes, 0..6), |streams| {
        let events = events_in(&runtime, &streams.concat());
        let lost = |event: &Event| matches!(event, Event::Lost(_));
        prop_assert!(events.last().is_some_and(lost));
        prop_assert_eq!(events.iter().filter(|event| lost(event)).count(), 1);
        Ok(())
    });
}

/// SC-20, SC-100
#[test]
fn a_handshake_with_anything_else_is_refused() {
    let start = Arguments::default()
        .octet(0)
        .octet(9)
        .long_text(b"")
        .long_text(b"PLAIN")
        .long_text(b"en_US");
    let tune = Arguments::default().short(0).long(0).short(1);
    let close = Arguments::default()
        .short(403)
        .short_text("no")
        .short(0)
        .short(0);
    let examples = vec![
        of_connection(id::START, &start),
        [
            of_connection(id::START, &start),
            of_connection(id::TUNE, &tune),
        ]
        .concat(),
        of_connection(id::CLOSE, &close),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"AMQP\x00\x00\x09\x01".to_vec(),
    ];
    let purposes = select(vec![Purpose::Consume, Purpose::Publish]);
    let runtime = runtime();
    check(&(damaged(examples), purposes), |(bytes, purpose)| {
        let opened = runtime.block_on(async {
            let (ours, mut theirs) = duplex(1 << 16);
            let (opened, ()) =
                tokio::join!(Connection::open(Box::new(ours), &LOGIN, purpose), async {
                    theirs.write_all(&bytes).await.expect("written");
                    theirs.shutdown().await.expect("the end");
                });
            opened.map(drop)
        });
        prop_assert!(opened.is_err());
        Ok(())
    });
}
