//! Long polling: one request at a time, and none while no slot is free (SC-36).

use std::sync::Arc;
use std::time::Duration;

use asya_wire::queue::FIFO;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Attribute};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::error::{Failure, classify};
use super::leases::{Unset, set_visibility};
use crate::broker::backoff::ReconnectBackoff;
use crate::broker::{Delivery, Demand, Event, Origin, Receipt, Refusal};
use crate::decide::Deliveries;

/// Maximum number of messages per request.
const BATCH: usize = 10;
/// How long a pending poll may continue during shutdown (SC-78).
const LAST_POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long requeuing those messages may take, so that the process still exits in time (SC-79).
const REQUEUE_TIMEOUT: Duration = Duration::from_millis(500);
/// Delay before it is tried again.
const REQUEUE_RETRY_DELAY: Duration = Duration::from_millis(100);

pub(super) struct Poll {
    pub(super) shared: Arc<Shared>,
    pub(super) demand: watch::Receiver<Demand>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) stopping: CancellationToken,
}

/// The messages of one request.
struct ReceivedMessages {
    messages: Vec<Message>,
    /// When their visibility timeout started.
    since: Instant,
}

impl Poll {
    pub(super) async fn run(mut self) {
        let (mut backoff, mut number, mut connected) = (ReconnectBackoff::default(), 0, None);
        let stopping = self.stopping.clone();
        loop {
            let count = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                count = self.wanted() => count,
            };
            let Some(received) = self.receive(count).await else {
                return;
            };
            match received {
                Ok(ReceivedMessages { messages, since }) => {
                    if connected.is_none() {
                        connected = Some(Instant::now());
                        self.set_connected(true);
                    }
                    for message in messages {
                        number += 1;
                        self.deliver(number, message, since);
                    }
                }
                Err(reason) => {
                    tracing::warn!(
                        "SQS: cannot poll queue {}: {reason}; retrying",
                        self.shared.own
                    );
                    let uptime = connected
                        .take()
                        .map_or(Duration::ZERO, |since| since.elapsed());
                    self.set_connected(false);
                    let delay = backoff.after(uptime);
                    tokio::select! {
                        () = stopping.cancelled() => return,
                        () = sleep(delay) => {}
                    }
                }
            }
        }
    }

    /// Waits for free capacity; returns how many messages to request.
    async fn wanted(&mut self) -> usize {
        loop {
            let demand = *self.demand.borrow_and_update();
            let in_flight = self.shared.leases.count();
            if in_flight < demand.slots {
                return (demand.in_flight() - in_flight).min(self.batch_size());
            }
            tokio::select! {
                Ok(()) = self.demand.changed() => {}
                () = self.shared.leases.one_ended() => {}
            }
        }
    }

    /// Maximum number of messages per request. SQS preserves the order within a message group by not delivering from a
    /// group that has messages in flight, but one batch may contain several messages of a group, which slots would
    /// reorder (SC-41).
    fn batch_size(&self) -> usize {
        if self.shared.own.ends_with(FIFO) {
            1
        } else {
            BATCH
        }
    }

    /// Requests up to `count` messages; `None` on shutdown.
    async fn receive(&self, count: usize) -> Option<Result<ReceivedMessages, String>> {
        let request = self.request(count);
        tokio::pin!(request);
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {
                if let Ok(Ok(received)) = timeout(LAST_POLL_TIMEOUT, request).await {
                    let until = received.since + self.shared.settings.visibility;
                    let requeuing = self.requeue(received.messages, until);
                    // Messages not requeued in time are redelivered after their visibility timeout.
                    let _ = timeout(REQUEUE_TIMEOUT, requeuing).await;
                }
                None
            }
            received = &mut request => Some(received),
        }
    }

    async fn request(&self, count: usize) -> Result<ReceivedMessages, String> {
        let Shared {
            api,
            queues,
            own,
            settings,
            ..
        } = &*self.shared;
        let reason = |failure| match failure {
            Failure::Refused(refusal) => {
                if refusal == Refusal::NoQueue {
                    queues.forget(own);
                }
                refusal.to_string()
            }
            Failure::Transient(reason) => reason,
        };
        let url = queues.url(own).await.map_err(reason)?;
        let seconds = |duration: Duration| i32::try_from(duration.as_secs()).unwrap_or(i32::MAX);
        let request = |sqs: &Client| {
            sqs.receive_message()
                .queue_url(&url)
                .max_number_of_messages(i32::try_from(count).unwrap_or(1))
                .visibility_timeout(seconds(settings.visibility))
                .wait_time_seconds(seconds(settings.wait))
                .message_system_attribute_names(Attribute::ApproximateReceiveCount)
                .message_system_attribute_names(Attribute::MessageGroupId)
                .customize()
                .config_override(api.poll())
                .send()
        };
        let asked = Instant::now();
        let response = api
            .send(request)
            .await
            .map_err(|error| reason(classify(&error)))?;
        Ok(ReceivedMessages {
            messages: response.messages.unwrap_or_default(),
            // SQS answers within the wait time; if this process was suspended meanwhile, it reads the response later.
            since: Instant::now().min(asked + settings.wait),
        })
    }

    fn deliver(&self, number: u64, message: Message, since: Instant) {
        let Some(received) = self.begin_lease(number, &message, since) else {
            return;
        };
        let group = message
            .attributes
            .as_ref()
            .and_then(|all| all.get(&Attribute::MessageGroupId).cloned());
        let body = message.body.unwrap_or_default();
        let delivery = Delivery {
            receipt: Receipt::new(0, number, CancellationToken::new()),
            size: body.len(),
            body: body.into(),
            deliveries: match received {
                0 | 1 => Deliveries::First,
                more => Deliveries::Before(more - 1),
            },
            origin: Origin {
                message: message.message_id,
                group,
            },
            since,
        };
        // The receiver is gone during shutdown.
        let _ = self.events.send(Event::Delivered(delivery));
    }

    /// Starts the lease of a message; returns its receive count.
    fn begin_lease(&self, number: u64, message: &Message, since: Instant) -> Option<u32> {
        let handle = message.receipt_handle.clone()?;
        let count = message
            .attributes
            .as_ref()
            .and_then(|all| all.get(&Attribute::ApproximateReceiveCount));
        let received = count.and_then(|count| count.parse().ok()).unwrap_or(1);
        self.shared.leases.begin(
            number,
            handle,
            received,
            self.shared.settings.visibility,
            since,
        );
        Some(received)
    }

    /// Releases messages of the last poll, again and again, unless they may have been released (SC-37). `until`: when
    /// their visibility timeout expires.
    pub(super) async fn requeue(&self, messages: Vec<Message>, until: Instant) {
        let handles = messages
            .into_iter()
            .filter_map(|message| message.receipt_handle);
        let mut leases: Vec<_> = (0..).zip(handles).collect();
        while !leases.is_empty() && Instant::now() < until {
            match set_visibility(&self.shared, &leases, Duration::ZERO).await {
                Ok(released) => leases.retain(|(number, _)| !released.contains(number)),
                Err(Unset { may_be_done: true }) => return,
                Err(Unset { may_be_done: false }) => {}
            }
            if !leases.is_empty() {
                sleep(REQUEUE_RETRY_DELAY).await;
            }
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
