//! Peeks at messages, and puts them back.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::access::{DeadLetters, Names};
use super::broker::{Delivery, QueueClient, Settlement};
use super::message::{Envelope, payload};
use crate::answer::Failure;
use crate::output::Format;

/// A message as shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageRow {
    /// Absent if it is not a message of an actor.
    pub id: Option<String>,
    /// Actors.
    pub route: Vec<String>,
    /// Index in `route` of the current actor.
    pub current: usize,
    /// How often the queue has delivered it, if the queue counts that.
    pub deliveries: Option<u64>,
    pub bytes: usize,
    /// The queue from which it was dead-lettered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why it failed, if it is a message to error-end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
}

/// A payload as shown.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Payload {
    /// The bytes as sent. Can only be written as JSON.
    Raw(Box<RawValue>),
    /// For YAML.
    Parsed(Value),
}

impl Payload {
    pub fn text(&self) -> String {
        match self {
            Self::Raw(raw) => raw.get().to_owned(),
            Self::Parsed(value) => value.to_string(),
        }
    }
}

impl MessageRow {
    pub fn new<H>(delivery: &Delivery<H>, with_payload: bool) -> Self {
        let read = Envelope::read(&delivery.body);
        Self {
            route: read.actors,
            current: read.current,
            id: read.id,
            deliveries: delivery.deliveries,
            bytes: delivery.body.len(),
            source: delivery.source.clone(),
            error: read.error,
            payload: with_payload.then(|| Payload::Raw(payload(&delivery.body))),
        }
    }

    /// Must be called before the message is written in this format.
    pub fn prepare(&mut self, format: Format) {
        if let (Format::Yaml, Some(Payload::Raw(raw))) = (format, &self.payload) {
            // JSON that is nested too deeply, or has numbers out of range, stays text.
            let value = serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().into());
            self.payload = Some(Payload::Parsed(value));
        }
    }
}

/// Messages that were peeked at.
#[derive(Debug, Default)]
pub struct Peek {
    pub rows: Vec<MessageRow>,
    /// How many messages went to the end of the queue instead of back to their place.
    pub relocated: usize,
    /// The delivery limit because of which they did, and where that comes from.
    pub limit: Option<(u64, &'static str)>,
}

impl Peek {
    /// Side effects of the peek.
    pub fn notes(&self, queue: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.rows.is_empty() {
            notes.push(format!(
                "the messages are back in {queue}; the broker counts this peek as a delivery of each"
            ));
        }
        if let (1.., Some((limit, source))) = (self.relocated, self.limit) {
            notes.push(format!(
                "{} of them went to the end of {queue}, as new messages: with one more delivery, the broker might \
                 dead-letter or drop them (the limit is {limit}, {source})",
                self.relocated
            ));
        }
        notes
    }
}

/// Peeks at the next messages of a queue.
///
/// # Errors
/// If the broker fails; it then puts back what was taken.
pub async fn peek<B: QueueClient>(
    broker: &mut B,
    queue: &str,
    count: usize,
    with_payload: bool,
) -> Result<Peek, Failure> {
    let taken = broker.take(queue, count).await?;
    let rows = taken.iter().map(|it| MessageRow::new(it, with_payload));
    let rows = rows.collect();
    let relocated = put_back(broker, queue, taken).await?;
    let limit = broker.delivery_limit();
    Ok(Peek {
        rows,
        relocated,
        limit: limit.map(|limit| (limit, B::LIMIT_SOURCE)),
    })
}

/// Puts messages back. Those that the broker would not deliver again go to the end of the queue; returns how many.
///
/// # Errors
/// If the broker fails.
pub async fn put_back<B: QueueClient>(
    broker: &mut B,
    queue: &str,
    taken: Vec<Delivery<B::Handle>>,
) -> Result<usize, Failure> {
    let limit = broker.delivery_limit();
    let (exhausted, others): (Vec<_>, Vec<_>) = taken
        .into_iter()
        .partition(|it| is_exhausted(it.deliveries, limit));
    broker.put_back(queue, others).await?;
    let mut relocated = 0;
    for delivery in exhausted {
        if broker.relocate(queue, delivery, queue).await? != Settlement::Lapsed {
            relocated += 1;
        }
    }
    Ok(relocated)
}

/// Whether the broker may dead-letter or drop the message at its next delivery, including this one.
fn is_exhausted(deliveries: Option<u64>, limit: Option<u64>) -> bool {
    match (deliveries, limit) {
        (Some(deliveries), Some(limit)) => deliveries + 1 >= limit,
        _ => false,
    }
}

/// Whether a dead letter belongs to the actor. Others are left alone.
pub fn belongs<H>(names: &Names, dlq: &DeadLetters, delivery: &Delivery<H>) -> bool {
    match &delivery.source {
        _ if !dlq.shared => true,
        Some(source) => *source == names.queue,
        None => Envelope::read(&delivery.body).actor() == Some(&names.actor),
    }
}
