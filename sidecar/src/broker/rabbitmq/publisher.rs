//! The connection for publishing.

use std::time::Duration;

use asya_amqp::{Connection, Event as Amqp, Purpose};
use asya_wire::queue::route_name;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::connect::{Connector, name};
use super::unconfirmed::{Address, Unconfirmed};
use crate::broker::{Event, Publication, Refusal};
use crate::config::{Publish, RabbitMqConfig};
use crate::metrics::BrokerMetrics;

/// If the broker neither confirms nor reads anything for this long, unconfirmed publications are sent again on a new
/// connection (SC-28).
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an AMQP short string, in bytes.
const MAX_NAME_LENGTH: usize = 255;

/// Reply codes of `channel.close`.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;

/// A publication, and the channel for its result.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) publication: Publication,
    pub(super) reply: oneshot::Sender<Result<(), Refusal>>,
    /// Publish to the default exchange or not at all: another exchange may route it to other queues only (SC-24).
    pub(super) must_reach_queue: bool,
}

/// Publishes until the process exits.
pub(super) struct Publisher {
    connector: Connector,
    exchange: String,
    configured: Publish,
    /// Whether the broker has refused the default exchange on this connection (SC-25).
    default_is_refused: bool,
    requests: mpsc::UnboundedReceiver<Request>,
    unconfirmed: Unconfirmed<Request>,
    blocked: bool,
    /// Whether the channel is being reopened.
    opening: bool,
    events: mpsc::UnboundedSender<Event>,
    metrics: BrokerMetrics,
}

/// An input of an open connection.
enum PublishStep {
    Event(Amqp),
    Request(Request),
    ConfirmTimeout,
    Closing,
}

impl Publisher {
    pub(super) fn new(
        connector: Connector,
        settings: &RabbitMqConfig,
        requests: mpsc::UnboundedReceiver<Request>,
        events: mpsc::UnboundedSender<Event>,
        metrics: BrokerMetrics,
    ) -> Self {
        Self {
            connector,
            exchange: settings.exchange.clone(),
            configured: settings.publish,
            default_is_refused: false,
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
            self.connector.log_service(Purpose::Publish);
            self.metrics.set_connected(name(Purpose::Publish), true);
            let why = self.serve(connection).await;
            self.metrics.set_connected(name(Purpose::Publish), false);
            self.unconfirmed.resend_all();
            self.set_blocked(false);
            let Some(why) = why else { return };
            self.connector.log_once(Purpose::Publish, &why);
        }
    }

    /// Serves the connection until it is lost, and returns the reason; `None` after a graceful close.
    async fn serve(&mut self, mut connection: Connection) -> Option<String> {
        self.opening = false;
        // The permission may have been missing only briefly, for example while definitions were imported.
        self.default_is_refused = false;
        loop {
            // The broker may have closed the channel; anything published after that is confirmed would be a connection
            // error.
            while let Some(event) = connection.arrived_event() {
                if let Err(why) = self.take(event, &connection) {
                    return Some(why);
                }
            }
            self.send(&connection);
            match self.next(&mut connection).await {
                PublishStep::Event(event) => {
                    if let Err(why) = self.take(event, &connection) {
                        return Some(why);
                    }
                }
                PublishStep::Request(request) => self.unconfirmed.push(request),
                PublishStep::ConfirmTimeout => {
                    // The broker may have read some of it meanwhile.
                    if self.confirm_deadline(&connection) > Some(Instant::now()) {
                        continue;
                    }
                    return Some(format!(
                        "no publication was confirmed for {} s",
                        CONFIRM_TIMEOUT.as_secs()
                    ));
                }
                PublishStep::Closing => {
                    connection.close().await;
                    return None;
                }
            }
        }
    }

    async fn next(&mut self, connection: &mut Connection) -> PublishStep {
        let late = self.confirm_deadline(connection);
        let far = || Instant::now() + CONFIRM_TIMEOUT;
        tokio::select! {
            biased;
            event = connection.event() => PublishStep::Event(event),
            Some(request) = self.requests.recv() => PublishStep::Request(request),
            () = self.connector.closing() => PublishStep::Closing,
            () = sleep_until(late.unwrap_or_else(far)), if late.is_some() => PublishStep::ConfirmTimeout,
        }
    }

    /// When the next confirm is overdue. A large publication may take longer to reach the broker.
    fn confirm_deadline(&self, connection: &Connection) -> Option<Instant> {
        let since = self.unconfirmed.silent_since().filter(|_| !self.blocked)?;
        Some(since.max(connection.last_written()) + CONFIRM_TIMEOUT)
    }

    /// Sends the pending publications.
    fn send(&mut self, connection: &Connection) {
        if self.opening {
            return;
        }
        // Drain the queue, so that concurrent publications share a write.
        while let Ok(request) = self.requests.try_recv() {
            self.unconfirmed.push(request);
        }
        while let Some(request) = self.unconfirmed.next() {
            if request.reply.is_closed() {
                self.unconfirmed.skipped();
                continue;
            }
            if request.must_reach_queue && self.default_is_refused {
                let why = "not to the queue itself".to_owned();
                complete(request, Err(Refusal::Forbidden(why)));
                self.unconfirmed.skipped();
                continue;
            }
            let publication = &request.publication;
            let address = self.address(&request);
            if address.key.len() > MAX_NAME_LENGTH {
                complete(request, Err(Refusal::NoQueue));
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

    fn address(&self, request: &Request) -> Address {
        let publication = &request.publication;
        let queue = &publication.queue;
        let way = match self.configured {
            _ if request.must_reach_queue => Publish::Queue,
            Publish::Queue if self.default_is_refused => Publish::Exchange,
            configured => configured,
        };
        let (exchange, key) = match way {
            Publish::Queue => (String::new(), queue.clone()),
            Publish::Exchange => (self.exchange.clone(), route_name(queue).to_owned()),
        };
        let message_id = Some(publication.id.clone()).filter(|id| id.len() <= MAX_NAME_LENGTH);
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
                    complete(request, result);
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
                tracing::warn!("RabbitMQ blocked the publishing connection: {why}");
                self.set_blocked(true);
            }
            Amqp::Unblocked => {
                tracing::info!("RabbitMQ unblocked the publishing connection");
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

    /// Handles a channel that the broker closed because of one publication (SC-25, SC-30).
    fn channel_closed(&mut self, code: u16, text: &str) {
        if code == ACCESS_REFUSED && self.uses_default() {
            tracing::warn!(
                "RabbitMQ refused publishing to the default exchange; using exchange {} on this connection: {text}",
                self.exchange
            );
            self.default_is_refused = true;
            self.unconfirmed.resend_all();
            return;
        }
        let Some(request) = self.unconfirmed.find_rejected() else {
            return;
        };
        let refusal = match code {
            PRECONDITION_FAILED => Refusal::TooLarge,
            NOT_FOUND => Refusal::NoQueue,
            _ => Refusal::Forbidden(format!("{code} {text}")),
        };
        complete(request, Err(refusal));
    }

    /// Whether an unconfirmed publication went to the default exchange.
    fn uses_default(&self) -> bool {
        self.unconfirmed
            .addresses()
            .any(|address| address.exchange.is_empty())
    }

    fn set_blocked(&mut self, blocked: bool) {
        if self.blocked != blocked {
            self.blocked = blocked;
            self.metrics.blocked.set(i64::from(blocked));
            self.unconfirmed.restart_clocks();
            // The receiver is gone during shutdown.
            let _ = self.events.send(Event::Blocked(blocked));
        }
    }
}

fn complete(request: Request, result: Result<(), Refusal>) {
    // The receiver is gone if the source delivery was lost.
    let _ = request.reply.send(result);
}

#[cfg(test)]
mod tests;
