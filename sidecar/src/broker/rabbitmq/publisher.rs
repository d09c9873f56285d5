//! The connection that publishes.

use std::time::Duration;

use asya_wire::queue::less_prefix;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::connect::{Connector, name};
use super::unconfirmed::{Address, Unconfirmed};
use crate::amqp::{Connection, Event as Amqp, Purpose};
use crate::broker::{Event, Publication, Refusal};
use crate::config::{Publish, RabbitMq};
use crate::metrics::BrokerMetrics;

/// A publication without an answer for this long is sent again on a new connection (SC-28).
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest name of an exchange or queue, in bytes.
const LONGEST_NAME: usize = 255;

/// Reply codes with which the broker closes a channel.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;

/// A publication, and who waits for what comes of it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) publication: Publication,
    pub(super) reply: oneshot::Sender<Result<(), Refusal>>,
}

/// Publishes, for as long as the process lives.
pub(super) struct Publisher {
    connector: Connector,
    exchange: String,
    way: Publish,
    requests: mpsc::UnboundedReceiver<Request>,
    unconfirmed: Unconfirmed<Request>,
    blocked: bool,
    /// The channel is being opened.
    opening: bool,
    events: mpsc::UnboundedSender<Event>,
    metrics: BrokerMetrics,
}

/// What happened while a connection was there.
enum Happened {
    Event(Amqp),
    Request(Request),
    NoAnswer,
    Closing,
}

impl Publisher {
    pub(super) fn new(
        connector: Connector,
        settings: &RabbitMq,
        requests: mpsc::UnboundedReceiver<Request>,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
    ) -> Self {
        Self {
            connector,
            exchange: settings.exchange.clone(),
            way: settings.publish,
            requests,
            unconfirmed: Unconfirmed::default(),
            blocked: false,
            opening: false,
            events,
            metrics,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(connection) = self.connector.connection(Purpose::Publish).await {
            self.metrics.set_connected(name(Purpose::Publish), true);
            self.opening = false;
            let why = self.serve(connection).await;
            self.metrics.set_connected(name(Purpose::Publish), false);
            self.unconfirmed.again();
            self.set_blocked(false);
            let Some(why) = why else { return };
            self.connector.tell(Purpose::Publish, &why);
        }
    }

    /// Serves until the connection is lost, and says why; `None`: it was closed in order.
    async fn serve(&mut self, mut connection: Connection) -> Option<String> {
        loop {
            self.send(&connection);
            match self.next(&mut connection).await {
                Happened::Event(event) => {
                    if let Err(why) = self.take(event, &connection) {
                        return Some(why);
                    }
                }
                Happened::Request(request) => self.unconfirmed.push(request),
                Happened::NoAnswer => {
                    return Some(format!(
                        "a publication was not answered for {} s",
                        PATIENCE.as_secs()
                    ));
                }
                Happened::Closing => {
                    connection.close().await;
                    return None;
                }
            }
        }
    }

    async fn next(&mut self, connection: &mut Connection) -> Happened {
        let late = self
            .unconfirmed
            .oldest()
            .filter(|_| !self.blocked)
            .map(|sent| sent + PATIENCE);
        let far = || Instant::now() + PATIENCE;
        tokio::select! {
            biased;
            event = connection.event() => Happened::Event(event),
            Some(request) = self.requests.recv() => Happened::Request(request),
            () = self.connector.closing() => Happened::Closing,
            () = sleep_until(late.unwrap_or_else(far)), if late.is_some() => Happened::NoAnswer,
        }
    }

    /// Sends what waits.
    fn send(&mut self, connection: &Connection) {
        if self.opening {
            return;
        }
        // What is asked for at the same time goes out at once.
        while let Ok(request) = self.requests.try_recv() {
            self.unconfirmed.push(request);
        }
        while let Some(request) = self.unconfirmed.next() {
            if request.reply.is_closed() {
                self.unconfirmed.skipped();
                continue;
            }
            let publication = &request.publication;
            let address = self.address(publication);
            if address.key.len() > LONGEST_NAME {
                answer(request, Err(Refusal::NoQueue));
                self.unconfirmed.skipped();
                continue;
            }
            connection.publish(
                &address.exchange,
                &address.key,
                &publication.id,
                publication.body.clone(),
            );
            self.unconfirmed.sent(request, address);
        }
    }

    fn address(&self, publication: &Publication) -> Address {
        let queue = &publication.queue;
        let (exchange, key) = match self.way {
            Publish::Queue => (String::new(), queue.clone()),
            Publish::Exchange => (self.exchange.clone(), less_prefix(queue).to_owned()),
        };
        let message_id = Some(publication.id.clone()).filter(|id| id.len() <= LONGEST_NAME);
        Address {
            exchange,
            key,
            message_id,
        }
    }

    fn take(&mut self, event: Amqp, connection: &Connection) -> Result<(), String> {
        match event {
            Amqp::Confirmed {
                number,
                multiple,
                stored,
            } => {
                for (request, result) in self.unconfirmed.confirmed(number, multiple, stored) {
                    answer(request, result);
                }
            }
            Amqp::Returned {
                exchange,
                key,
                message_id,
            } => {
                self.unconfirmed.returned(&Address {
                    exchange,
                    key,
                    message_id,
                });
            }
            Amqp::Blocked(why) => {
                tracing::warn!("RabbitMQ takes no publications for now: {why}");
                self.set_blocked(true);
            }
            Amqp::Unblocked => {
                tracing::info!("RabbitMQ takes publications again");
                self.set_blocked(false);
            }
            Amqp::ChannelClosed { code, text } => {
                self.channel_closed(code, &text);
                self.opening = true;
                connection.open_channel(Purpose::Publish);
            }
            Amqp::ChannelOpen => self.opening = false,
            Amqp::Lost(why) => return Err(why),
            _ => {}
        }
        Ok(())
    }

    /// The broker closes the channel for the fault of one publication (SC-25, SC-30).
    fn channel_closed(&mut self, code: u16, text: &str) {
        if code == ACCESS_REFUSED && self.way == Publish::Queue {
            tracing::warn!(
                "RabbitMQ does not let this user publish to the default exchange, so exchange {} is used: {text}",
                self.exchange
            );
            self.way = Publish::Exchange;
            self.unconfirmed.again();
            return;
        }
        let Some(request) = self.unconfirmed.blamed() else {
            return;
        };
        let refusal = match code {
            PRECONDITION_FAILED => Refusal::TooLarge,
            NOT_FOUND => Refusal::NoQueue,
            _ => Refusal::Forbidden(format!("{code} {text}")),
        };
        answer(request, Err(refusal));
    }

    fn set_blocked(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.metrics.blocked.set(i64::from(blocked));
            self.unconfirmed.restart_clocks();
            // Nobody listens any more when the process ends.
            let _ = self.events.send(Event::Blocked(blocked));
        }
    }
}

fn answer(request: Request, result: Result<(), Refusal>) {
    // The one who asked may have gone, when its delivery was lost.
    let _ = request.reply.send(result);
}
