//! Connections to a scripted broker.

use std::collections::BTreeMap;

use asya_amqp::{Connection, Login, Purpose};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

use crate::config::{Config, RabbitMqConfig, Transport};

/// How many unread bytes the connection holds.
pub(super) const BUFFER: usize = 64 << 10;

/// The settings of actor foo.
pub(super) fn settings() -> RabbitMqConfig {
    let environment = BTreeMap::from([("ASYA_ACTOR_NAME".to_owned(), "foo".to_owned())]);
    match Config::read(&environment) {
        Ok(Config {
            transport: Transport::RabbitMq(settings),
            ..
        }) => settings,
        _ => panic!("settings for RabbitMQ"),
    }
}

/// A frame of this type with this payload.
pub(super) fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small payload");
    let mut frame = vec![kind];
    frame.extend(channel.to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend(payload);
    frame.push(0xCE);
    frame
}

/// A method frame with these encoded arguments.
pub(super) fn method(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let ids = [class.to_be_bytes(), method.to_be_bytes()].concat();
    frame(1, channel, &[&ids, arguments].concat())
}

/// Opens a connection; also returns the broker's end of it.
pub(super) async fn connected(purpose: Purpose) -> (Connection, DuplexStream) {
    let (ours, mut theirs) = duplex(BUFFER);
    let login = Login {
        user: "me",
        password: "secret",
        vhost: "/",
        product: "asya-sidecar",
        name: "a name",
    };
    let start = [
        &[0, 9][..],
        &[0; 4],
        &5_u32.to_be_bytes(),
        b"PLAIN",
        &[0; 4],
    ]
    .concat();
    let tune = [&[0, 0][..], &4096_u32.to_be_bytes(), &[0, 30]].concat();
    for answer in [
        method(0, 10, 10, &start),
        method(0, 10, 30, &tune),
        method(0, 10, 41, &[0]),
        method(1, 20, 11, &[0; 4]),
    ] {
        theirs.write_all(&answer).await.expect("sent");
    }
    let connection = Connection::open(Box::new(ours), &login, purpose).await;
    (connection.expect("a connection"), theirs)
}
