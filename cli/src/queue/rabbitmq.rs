//! RabbitMQ over AMQP. Each request waits for the answer to the previous one, except requests for messages.

use std::time::Duration;

use asya_amqp::{Connection, Event, Login, OpenError, Properties, Purpose, Stream};
use bytes::Bytes;

use super::broker::{Delivery, Moved, QueueClient, SendFailure, Settlement, Size};
use crate::answer::Failure;
use crate::interrupt::Interrupt;

/// Default delivery limit of quorum queues since RabbitMQ 4.0. AMQP does not show the limit of a queue.
const DEFAULT_LIMIT: u64 = 20;
const NOT_FOUND: u16 = 404;
/// How many messages are requested before the first answer is read.
const REQUESTS_IN_FLIGHT: usize = 100;
/// Header with the queue from which a message was first dead-lettered.
const SOURCE: &str = "x-first-death-queue";

#[derive(Clone, Debug)]
pub struct Credentials {
    pub user: String,
    pub password: String,
    pub vhost: String,
}

pub struct RabbitMq {
    connection: Connection,
    /// Timeout of each answer.
    timeout: Duration,
    /// Number of publications on this channel.
    published: u64,
    delivery_limit: u64,
    /// Why the broker currently accepts no messages.
    blocked: Option<String>,
}

/// Identifies a delivery.
pub struct Tag {
    tag: u64,
    properties: Properties,
}

impl RabbitMq {
    /// Logs in. `limit` is the delivery limit of the actor's queue, if one is configured. RabbitMQ's default is assumed
    /// if that is lower, since the configuration may be newer than the queue.
    ///
    /// # Errors
    /// If the broker refuses.
    pub async fn open(
        stream: Box<dyn Stream>,
        credentials: &Credentials,
        limit: Option<u64>,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let Credentials {
            user,
            password,
            vhost,
        } = credentials;
        let login = Login {
            user,
            password,
            vhost,
            product: "kubectl-asya",
            name: "kubectl asya",
        };
        let opened = Connection::open(stream, &login, Purpose::Publish).await;
        let connection = opened.map_err(|error| match error {
            OpenError::Refused { code, text } => Failure::new(format!(
                "RabbitMQ refuses user {user:?} in vhost {vhost:?}: {code} {text}; check --user, --password-file and \
                 --vhost"
            )),
            error => Failure::new(format!("RabbitMQ: {error}; check --address")),
        })?;
        Ok(Self {
            connection,
            timeout,
            published: 0,
            blocked: None,
            delivery_limit: limit.map_or(DEFAULT_LIMIT, |limit| limit.min(DEFAULT_LIMIT)),
        })
    }

    /// Closes gracefully, so that the broker has processed all acknowledgements.
    pub async fn close(self) {
        self.connection.close().await;
    }

    /// The next event that answers a request. A broker that blocks the connection may answer nevertheless: it accepts
    /// the message that comes first.
    async fn answer(&mut self) -> Result<Event, Failure> {
        loop {
            let event = tokio::time::timeout(self.timeout, self.connection.event()).await;
            match event.map_err(|_| self.no_answer())? {
                Event::Lost(why) => {
                    return Err(Failure::new(format!("connection to RabbitMQ: {why}")));
                }
                Event::Blocked(why) => self.blocked = Some(why),
                Event::Unblocked => self.blocked = None,
                event => return Ok(event),
            }
        }
    }

    fn no_answer(&self) -> Failure {
        match &self.blocked {
            Some(why) => Failure::new(format!(
                "RabbitMQ accepts no messages now: {why}; it may still store the last one"
            )),
            None => Failure::timed_out(self.timeout),
        }
    }

    async fn confirmed(&mut self, queue: &str) -> Result<(), SendFailure> {
        self.published += 1;
        let mut is_returned = false;
        loop {
            // Without an answer, for example because the connection is lost, the broker may have stored it.
            match self.answer().await.map_err(SendFailure::Unconfirmed)? {
                Event::Returned { .. } => is_returned = true,
                Event::Confirmed { number, stored, .. } if number >= self.published => {
                    return match stored {
                        true if is_returned => Err(no_queue(queue).into()),
                        true => Ok(()),
                        false => Err(Failure::new(format!(
                            "RabbitMQ rejects the message: queue {queue} is full or unavailable"
                        ))
                        .into()),
                    };
                }
                Event::Confirmed { .. } => {}
                event => return Err(unexpected(event, queue).into()),
            }
        }
    }
}

impl QueueClient for RabbitMq {
    type Handle = Tag;

    async fn size(&mut self, queue: &str) -> Result<Option<Size>, Failure> {
        self.connection.count(queue);
        match self.answer().await? {
            Event::Counted {
                messages,
                consumers,
            } => Ok(Some(Size {
                waiting: messages.into(),
                processing: None,
                consumers: Some(consumers.into()),
            })),
            Event::ChannelClosed {
                code: NOT_FOUND, ..
            } => {
                self.connection.open_channel(Purpose::Publish);
                self.published = 0;
                match self.answer().await? {
                    Event::ChannelOpen => Ok(None),
                    event => Err(unexpected(event, queue)),
                }
            }
            event => Err(unexpected(event, queue)),
        }
    }

    async fn take(&mut self, queue: &str, count: usize) -> Result<Vec<Delivery<Tag>>, Failure> {
        let mut taken = Vec::new();
        let mut is_empty = false;
        while taken.len() < count && !is_empty {
            // The broker answers in order; waiting for each answer would take a round trip per message.
            let asked = REQUESTS_IN_FLIGHT.min(count - taken.len());
            (0..asked).for_each(|_| self.connection.get(queue));
            for _ in 0..asked {
                match self.answer().await? {
                    Event::Got {
                        tag,
                        properties,
                        body,
                    } => taken.push(Delivery {
                        deliveries: properties.deliveries(),
                        source: properties.header(SOURCE),
                        handle: Tag { tag, properties },
                        // The broker never redelivers a message that this program still holds.
                        id: None,
                        body,
                    }),
                    Event::GotNothing => is_empty = true,
                    event => return Err(unexpected(event, queue)),
                }
            }
        }
        Ok(taken)
    }

    /// Messages are held until the connection ends.
    async fn keep(&mut self, _: &str, _: &mut [Delivery<Tag>]) -> Result<(), Failure> {
        Ok(())
    }

    async fn put_back(&mut self, _: &str, held: Vec<Delivery<Tag>>) -> Result<(), Failure> {
        for delivery in held {
            self.connection.requeue(delivery.handle.tag);
        }
        Ok(())
    }

    async fn relocate(
        &mut self,
        from: &str,
        delivery: Delivery<Tag>,
        to: &str,
    ) -> Result<Settlement, Failure> {
        let Tag { tag, properties } = delivery.handle;
        self.connection.republish(to, &properties, delivery.body);
        let confirmed = self.confirmed(to).await;
        confirmed.map_err(|failure| failure.of_copy(from, to))?;
        self.connection.acknowledge(tag, false);
        Ok(Settlement::Done)
    }

    async fn remove(&mut self, _: &str, delivery: Delivery<Tag>) -> Result<Settlement, Failure> {
        self.connection.acknowledge(delivery.handle.tag, false);
        Ok(Settlement::Done)
    }

    async fn send(&mut self, queue: &str, id: &str, body: Bytes) -> Result<(), SendFailure> {
        self.connection.publish("", queue, id, body);
        self.confirmed(queue).await
    }

    async fn move_all(
        &mut self,
        _: &str,
        _: &str,
        _: &Interrupt,
    ) -> Result<Option<Moved>, Failure> {
        Ok(None)
    }

    fn delivery_limit(&self) -> Option<u64> {
        Some(self.delivery_limit)
    }

    const LIMIT_SOURCE: &str = "assumed from what is known of the operator's configuration";
}

fn no_queue(queue: &str) -> Failure {
    Failure::new(format!(
        "RabbitMQ has no queue {queue}; does `kubectl asya status` report it as ready?"
    ))
}

fn unexpected(event: Event, queue: &str) -> Failure {
    match event {
        Event::ChannelClosed {
            code: NOT_FOUND, ..
        } => no_queue(queue),
        Event::ChannelClosed { code, text } => {
            Failure::new(format!("RabbitMQ, queue {queue}: {code} {text}"))
        }
        _ => Failure::new(format!("RabbitMQ, queue {queue}: an unexpected answer")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// A method frame.
    fn frame(channel: u16, method: (u16, u16), arguments: &[u8]) -> Vec<u8> {
        let mut payload = [method.0.to_be_bytes(), method.1.to_be_bytes()].concat();
        payload.extend_from_slice(arguments);
        let mut frame = vec![1];
        frame.extend_from_slice(&channel.to_be_bytes());
        frame.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&payload);
        frame.push(0xCE);
        frame
    }

    /// A connection to a broker that runs out of memory, and then sends `frames`.
    async fn blocked(frames: &[u8]) -> (RabbitMq, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let start = [&[0, 9, 0, 0, 0, 0, 0, 0, 0, 5][..], b"PLAIN", &[0; 4]].concat();
        let tune = [&[0, 1][..], &131_072_u32.to_be_bytes(), &[0, 60]].concat();
        let script = [
            frame(0, (10, 10), &start),
            frame(0, (10, 30), &tune),
            frame(0, (10, 41), &[0]),
            frame(1, (20, 11), &[0; 4]),
            frame(1, (85, 11), &[]),
            frame(0, (10, 60), b"\x03low"),
            frames.to_vec(),
        ];
        far.write_all(&script.concat()).await.unwrap();
        let credentials = Credentials {
            user: "u".to_owned(),
            password: "p".to_owned(),
            vhost: "/".to_owned(),
        };
        let timeout = Duration::from_millis(200);
        let broker = RabbitMq::open(Box::new(near), &credentials, None, timeout).await;
        (broker.unwrap(), far)
    }

    /// docs/cli.md: dead letters are moved and deleted in batches.
    #[tokio::test]
    async fn messages_are_asked_for_before_the_first_answer() {
        let (mut broker, mut far) = blocked(&[]).await;
        let serving = tokio::spawn(async move {
            let get = [0, 60, 0, 70];
            let mut read = Vec::new();
            while read.windows(4).filter(|it| *it == get).count() < 3 {
                read.push(far.read_u8().await.unwrap());
            }
            let nothing = frame(1, (60, 72), &[0]);
            let counted = frame(1, (50, 11), &[&[1, b'q'][..], &[0; 8]].concat());
            let answers = [nothing.repeat(3), counted].concat();
            far.write_all(&answers).await.unwrap();
            far
        });
        assert!(broker.take("q", 3).await.unwrap().is_empty());
        assert_eq!(broker.size("q").await.unwrap().unwrap().waiting, 0);
        drop(serving.await.unwrap());
    }

    /// A broker does not block a connection until it has accepted a first message.
    #[tokio::test]
    async fn message_that_a_blocked_broker_confirms_is_sent() {
        let confirmed = frame(1, (60, 80), &[0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let (mut broker, _far) = blocked(&confirmed).await;
        assert_eq!(broker.send("q", "1", Bytes::new()).await, Ok(()));
    }

    #[tokio::test]
    async fn message_that_a_blocked_broker_does_not_confirm_may_still_be_stored() {
        let (mut broker, _far) = blocked(&[]).await;
        let why = "RabbitMQ accepts no messages now: low; it may still store the last one";
        assert_eq!(
            broker.send("q", "1", Bytes::new()).await,
            Err(SendFailure::Unconfirmed(Failure::new(why)))
        );
    }

    #[tokio::test]
    async fn message_whose_connection_is_lost_may_still_be_stored() {
        let (mut broker, far) = blocked(&[]).await;
        drop(far);
        let failed = broker.send("q", "1", Bytes::new()).await;
        assert!(
            matches!(failed, Err(SendFailure::Unconfirmed(_))),
            "{failed:?}"
        );
    }

    #[tokio::test]
    async fn message_that_the_broker_rejects_is_not_stored() {
        let rejected = frame(1, (60, 120), &[0, 0, 0, 0, 0, 0, 0, 1, 0]);
        let (mut broker, _far) = blocked(&rejected).await;
        let failed = broker.send("q", "1", Bytes::new()).await;
        assert!(matches!(failed, Err(SendFailure::Refused(_))), "{failed:?}");
    }
}
