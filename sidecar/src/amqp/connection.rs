//! An open connection with one channel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::encode::{self, Arguments, of_channel, of_connection};
use super::handshake::{Login, OpenError, Purpose, channel_open, shake_hands};
use super::id;
use super::method::Event;
use super::reader::Reader;
use super::stream::Stream;
use super::writer::{Outgoing, Writer};

/// How long the broker may take to say goodbye (SC-33).
const GOODBYE: Duration = Duration::from_secs(2);

/// An open connection. Its requests are sent in order and do not wait; what comes of them are [`Event`]s. Dropping it
/// breaks it off.
pub struct Connection {
    outgoing: UnboundedSender<Outgoing>,
    events: UnboundedReceiver<Event>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

/// How a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The broker said goodbye.
    InOrder,
    /// It did not in time, or the connection broke.
    Broken,
}

impl Connection {
    /// Logs in, opens the channel, and on a connection for publications switches confirmations on.
    ///
    /// # Errors
    /// When the broker does not let us in.
    pub async fn open(
        mut stream: Box<dyn Stream>,
        login: &Login<'_>,
        purpose: Purpose,
    ) -> Result<Self, OpenError> {
        let agreed = shake_hands(&mut *stream, login, purpose).await?;
        let (read, write) = tokio::io::split(stream);
        let (outgoing, to_write) = unbounded_channel();
        let (tell, events) = unbounded_channel();
        let reader = Reader {
            stream: read,
            frame_max: agreed.frame_max,
            silence: agreed.heartbeat * 2,
            events: tell,
            answers: outgoing.clone(),
        };
        let writer = Writer {
            stream: write,
            frame_max: agreed.frame_max,
            idle: agreed.heartbeat / 2,
            outgoing: to_write,
        };
        Ok(Self {
            outgoing,
            events,
            reader: tokio::spawn(reader.run()),
            writer: tokio::spawn(writer.run()),
        })
    }

    /// What happens next. After [`Event::Lost`] nothing does.
    pub async fn event(&mut self) -> Event {
        let lost = || Event::Lost("the connection is gone".to_owned());
        self.events.recv().await.unwrap_or_else(lost)
    }

    /// Starts a consumer with a prefetch of its own; `timeout`: how long a delivery may be unacknowledged.
    pub fn consume(&self, queue: &str, consumer: &str, prefetch: u16, timeout: Option<Duration>) {
        let qos = Arguments::default().long(0).short(prefetch).octet(0);
        let mut frames = of_channel(id::QOS, &qos);
        let arguments = match timeout {
            Some(timeout) => {
                let milliseconds = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
                Arguments::default().entry_number("x-consumer-timeout", milliseconds)
            }
            None => Arguments::default(),
        };
        let consume = Arguments::default()
            .short(0)
            .short_text(queue)
            .short_text(consumer)
            .octet(0)
            .table(&arguments);
        frames.extend_from_slice(&of_channel(id::CONSUME, &consume));
        self.send(frames);
    }

    /// Ends a consumer. What was delivered to it stays to be settled.
    pub fn cancel(&self, consumer: &str) {
        self.send(of_channel(
            id::CANCEL,
            &Arguments::default().short_text(consumer).octet(0),
        ));
    }

    /// Acknowledges a delivery.
    pub fn acknowledge(&self, tag: u64) {
        self.send(of_channel(
            id::ACK,
            &Arguments::default().long_long(tag).octet(0),
        ));
    }

    /// Gives a delivery back, or rejects it.
    pub fn refuse(&self, tag: u64, requeue: bool) {
        const REQUEUE: u8 = 2;
        let bits = if requeue { REQUEUE } else { 0 };
        self.send(of_channel(
            id::NACK,
            &Arguments::default().long_long(tag).octet(bits),
        ));
    }

    /// Publishes a message: persistent and mandatory.
    pub fn publish(&self, exchange: &str, key: &str, message_id: &str, body: Bytes) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let frames = encode::publication(exchange, key, message_id, now, body.len());
        // The writer is gone when the connection is, which is an event.
        let _ = self.outgoing.send(Outgoing::with_body(frames, body));
    }

    /// Opens the channel again after the broker has closed it.
    pub fn open_channel(&self, purpose: Purpose) {
        self.send(channel_open(purpose));
    }

    /// Closes in order: all that was sent before is processed by the broker, acknowledgements above all (SC-33).
    pub async fn close(mut self) -> Closing {
        self.send(of_channel(id::CHANNEL_CLOSE, &encode::goodbye()));
        let until = Instant::now() + GOODBYE;
        loop {
            match timeout_at(until, self.event()).await {
                Ok(Event::ChannelCloseOk | Event::ChannelClosed { .. }) => {
                    self.send(of_connection(id::CLOSE, &encode::goodbye()));
                }
                Ok(Event::CloseOk) => return Closing::InOrder,
                Ok(Event::Lost(_)) | Err(_) => return Closing::Broken,
                Ok(_) => {}
            }
        }
    }

    fn send(&self, frames: Vec<u8>) {
        // The writer is gone when the connection is, which is an event.
        let _ = self.outgoing.send(Outgoing::frames(frames));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}
