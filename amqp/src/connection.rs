//! An open connection with one channel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::content::LARGEST;
use super::encode::{self, Arguments, of_channel, of_connection};
use super::handshake::{Login, OpenError, Purpose, channel_open, shake_hands};
use super::method::Event;
use super::properties::Properties;
use super::protocol::id;
use super::reader::Reader;
use super::stream::Stream;
use super::writer::{Outgoing, Progress, Writer};

/// The consumer argument that makes the broker redeliver what is not settled within this time, in milliseconds. Since
/// RabbitMQ 4.3.2, classic queues refuse it.
pub const CONSUMER_TIMEOUT: &str = "x-consumer-timeout";

/// How long to wait for `connection.close-ok` (SC-33).
const GOODBYE: Duration = Duration::from_secs(2);

/// An open connection. Requests are sent in order without waiting; their results arrive as [`Event`]s. Dropping the
/// connection aborts it.
pub struct Connection {
    outgoing: UnboundedSender<Outgoing>,
    events: UnboundedReceiver<Event>,
    progress: Progress,
    broker_version: Option<(u16, u16)>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

/// How a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The broker confirmed the close.
    InOrder,
    /// The broker did not confirm in time, or the connection broke.
    Broken,
}

impl Connection {
    /// Logs in and opens the channel; on a publishing connection, enables publisher confirms.
    ///
    /// # Errors
    /// If the broker refuses the connection or the handshake fails.
    pub async fn open(
        stream: Box<dyn Stream>,
        login: &Login<'_>,
        purpose: Purpose,
    ) -> Result<Self, OpenError> {
        Self::open_limited(stream, login, purpose, LARGEST).await
    }

    /// Like [`Self::open`], but keeps only the first 64 KiB of a delivery with more than `largest` bytes; the rest is
    /// read and discarded.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_limited(
        mut stream: Box<dyn Stream>,
        login: &Login<'_>,
        purpose: Purpose,
        largest: usize,
    ) -> Result<Self, OpenError> {
        let agreed = shake_hands(&mut *stream, login, purpose).await?;
        let (read, write) = tokio::io::split(stream);
        let (outgoing, to_write) = unbounded_channel();
        let (event_sender, events) = unbounded_channel();
        let reader = Reader {
            stream: read,
            frame_max: agreed.frame_max,
            largest,
            silence: agreed.heartbeat * 2,
            events: event_sender,
            answers: outgoing.clone(),
        };
        let progress = Progress::new();
        let writer = Writer {
            stream: write,
            frame_max: agreed.frame_max,
            idle: agreed.heartbeat / 2,
            outgoing: to_write,
            progress: progress.clone(),
        };
        Ok(Self {
            outgoing,
            events,
            progress,
            broker_version: agreed.version,
            reader: tokio::spawn(reader.run()),
            writer: tokio::spawn(writer.run()),
        })
    }

    /// The next event. [`Event::Lost`] is the last one.
    pub async fn event(&mut self) -> Event {
        let lost = || Event::Lost("connection lost".to_owned());
        self.events.recv().await.unwrap_or_else(lost)
    }

    /// The next event, if one has already arrived.
    pub fn arrived_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The broker's version, major and minor, if the broker reports it.
    #[must_use]
    pub fn broker_version(&self) -> Option<(u16, u16)> {
        self.broker_version
    }

    /// When the broker last read some of what is sent to it; heartbeats do not count.
    #[must_use]
    pub fn last_written(&self) -> Instant {
        self.progress.last()
    }

    /// Starts a consumer with its own prefetch; `timeout` is its consumer timeout.
    pub fn consume(&self, queue: &str, consumer: &str, prefetch: u16, timeout: Option<Duration>) {
        let qos = Arguments::default().long(0).short(prefetch).octet(0);
        let mut frames = of_channel(id::QOS, &qos);
        let arguments = match timeout {
            Some(timeout) => {
                let milliseconds = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
                Arguments::default().entry_number(CONSUMER_TIMEOUT, milliseconds)
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

    /// Cancels a consumer. Its unsettled deliveries must still be settled.
    pub fn cancel(&self, consumer: &str) {
        self.send(of_channel(
            id::CANCEL,
            &Arguments::default().short_text(consumer).octet(0),
        ));
    }

    /// Acknowledges a delivery, or all unsettled ones up to it.
    pub fn acknowledge(&self, tag: u64, multiple: bool) {
        self.send(of_channel(
            id::ACK,
            &Arguments::default().long_long(tag).octet(multiple.into()),
        ));
    }

    /// Returns a delivery that was not processed to its queue. Since RabbitMQ 4.3, a quorum queue does not count this
    /// as a failure.
    pub fn requeue(&self, tag: u64) {
        const REQUEUE: u8 = 2;
        self.send(of_channel(
            id::NACK,
            &Arguments::default().long_long(tag).octet(REQUEUE),
        ));
    }

    /// Rejects a delivery whose processing failed, with or without requeue. A quorum queue counts this as a failure.
    pub fn reject(&self, tag: u64, requeue: bool) {
        self.send(of_channel(
            id::REJECT,
            &Arguments::default().long_long(tag).octet(requeue.into()),
        ));
    }

    /// Requests the next message of a queue: [`Event::Got`] or [`Event::GotNothing`].
    pub fn get(&self, queue: &str) {
        let get = Arguments::default().short(0).short_text(queue).octet(0);
        self.send(of_channel(id::GET, &get));
    }

    /// Requests the size of a queue: [`Event::Counted`]. If the queue does not exist, the broker closes the channel.
    pub fn count(&self, queue: &str) {
        const PASSIVE: u8 = 1;
        let declare = Arguments::default()
            .short(0)
            .short_text(queue)
            .octet(PASSIVE)
            .table(&Arguments::default());
        self.send(of_channel(id::DECLARE, &declare));
    }

    /// Publishes a received message to a queue, mandatory, with its properties except for its delivery counts, which
    /// start over.
    pub fn republish(&self, queue: &str, properties: &Properties, body: Bytes) {
        let frames = encode::republication(queue, &properties.without_deliveries(), body.len());
        // If the writer is gone, the connection is lost, which is reported as an event.
        let _ = self.outgoing.send(Outgoing::with_body(frames, body));
    }

    /// Publishes a persistent, mandatory message.
    pub fn publish(&self, exchange: &str, key: &str, message_id: &str, body: Bytes) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let frames = encode::publication(exchange, key, message_id, now, body.len());
        // If the writer is gone, the connection is lost, which is reported as an event.
        let _ = self.outgoing.send(Outgoing::with_body(frames, body));
    }

    /// Reopens the channel after the broker has closed it.
    pub fn open_channel(&self, purpose: Purpose) {
        self.send(channel_open(purpose));
    }

    /// Closes gracefully, so that the broker processes everything sent before, acknowledgements in particular (SC-33).
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
        // If the writer is gone, the connection is lost, which is reported as an event.
        let _ = self.outgoing.send(Outgoing::frames(frames));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}
