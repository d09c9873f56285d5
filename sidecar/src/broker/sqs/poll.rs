//! Receives messages: one request at a time, and none while there is no slot for a message (SC-36).

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Attribute};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::error::{Failure, classify};
use crate::broker::pause::Pauses;
use crate::broker::{Delivery, Demand, Event, Origin, Receipt, Refusal};
use crate::decide::Deliveries;

/// SQS' bound for a request.
const AT_ONCE: usize = 10;
/// How long a running request may go on at the end of the process (SC-78).
const LAST_POLL: Duration = Duration::from_secs(2);

pub(super) struct Poll {
    pub(super) shared: Arc<Shared>,
    pub(super) demand: watch::Receiver<Demand>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) closing: CancellationToken,
}

impl Poll {
    pub(super) async fn run(mut self) {
        let (mut pauses, mut number, mut connected) = (Pauses::default(), 0, None);
        let closing = self.closing.clone();
        loop {
            let count = tokio::select! {
                () = closing.cancelled() => return,
                count = self.wanted() => count,
            };
            let Some(received) = self.receive(count).await else {
                return;
            };
            match received {
                Ok((messages, since)) => {
                    if connected.is_none() {
                        connected = Some(Instant::now());
                        self.set_connected(true);
                    }
                    for message in messages {
                        number += 1;
                        self.deliver(number, message, since);
                    }
                }
                Err(why) => {
                    tracing::warn!(
                        "SQS: queue {} cannot be polled: {why}; trying again",
                        self.shared.own
                    );
                    let service = connected
                        .take()
                        .map_or(Duration::ZERO, |since| since.elapsed());
                    self.set_connected(false);
                    let pause = pauses.after(service);
                    tokio::select! {
                        () = closing.cancelled() => return,
                        () = sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// How many messages are wanted; waits until some are.
    async fn wanted(&mut self) -> usize {
        loop {
            let demand = *self.demand.borrow_and_update();
            let in_flight = self.shared.leases.count();
            if in_flight < demand.slots {
                return (demand.in_flight() - in_flight).min(AT_ONCE);
            }
            tokio::select! {
                Ok(()) = self.demand.changed() => {}
                () = self.shared.leases.one_ended() => {}
            }
        }
    }

    /// Messages, and since when they are hidden. `None`: the process ends.
    async fn receive(&self, count: usize) -> Option<Result<(Vec<Message>, Instant), String>> {
        let request = self.request(count);
        tokio::pin!(request);
        tokio::select! {
            received = &mut request => Some(received),
            () = self.closing.cancelled() => {
                if let Ok(Ok((messages, since))) = timeout(LAST_POLL, request).await {
                    for message in messages {
                        self.give_back(message, since).await;
                    }
                }
                None
            }
        }
    }

    async fn request(&self, count: usize) -> Result<(Vec<Message>, Instant), String> {
        let Shared {
            client,
            queues,
            own,
            settings,
            ..
        } = &*self.shared;
        let told = |failure| match failure {
            Failure::Refused(refusal) => {
                if refusal == Refusal::NoQueue {
                    queues.forget(own);
                }
                refusal.to_string()
            }
            Failure::Transient(why) => why,
        };
        let url = queues.url(own).await.map_err(told)?;
        let seconds = |duration: Duration| i32::try_from(duration.as_secs()).unwrap_or(i32::MAX);
        let request = client
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(i32::try_from(count).unwrap_or(1))
            .visibility_timeout(seconds(settings.visibility))
            .wait_time_seconds(seconds(settings.wait))
            .message_system_attribute_names(Attribute::ApproximateReceiveCount)
            .message_system_attribute_names(Attribute::MessageGroupId);
        let answer = request
            .send()
            .await
            .map_err(|error| told(classify(&error)))?;
        Ok((answer.messages.unwrap_or_default(), Instant::now()))
    }

    fn deliver(&self, number: u64, message: Message, since: Instant) {
        let Some((handle, received)) = self.begin(number, &message, since) else {
            return;
        };
        drop(handle);
        let group = message
            .attributes
            .as_ref()
            .and_then(|all| all.get(&Attribute::MessageGroupId).cloned());
        let delivery = Delivery {
            receipt: Receipt::new(0, number, CancellationToken::new()),
            body: message.body.unwrap_or_default().into(),
            deliveries: match received {
                0 | 1 => Deliveries::First,
                more => Deliveries::Before(more - 1),
            },
            origin: Origin {
                message: message.message_id,
                group,
            },
        };
        // Nobody listens any more when the process ends.
        let _ = self.events.send(Event::Delivered(delivery));
    }

    fn begin(&self, number: u64, message: &Message, since: Instant) -> Option<(String, u32)> {
        let handle = message.receipt_handle.clone()?;
        let count = message
            .attributes
            .as_ref()
            .and_then(|all| all.get(&Attribute::ApproximateReceiveCount));
        let received = count.and_then(|count| count.parse().ok()).unwrap_or(1);
        self.shared.leases.begin(
            number,
            handle.clone(),
            received,
            self.shared.settings.visibility,
            since,
        );
        Some((handle, received))
    }

    async fn give_back(&self, message: Message, since: Instant) {
        // No other message has this number.
        const LAST: u64 = u64::MAX;
        if self.begin(LAST, &message, since).is_some() {
            self.shared.show_again(LAST, |_| 0).await;
        }
    }

    fn set_connected(&self, connected: bool) {
        self.shared.metrics.set_connected("receive", connected);
        let event = if connected {
            Event::Connected
        } else {
            Event::Disconnected
        };
        let _ = self.events.send(event);
    }
}
