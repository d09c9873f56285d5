//! `send`: sends a message, and follows it to its end without taking it from anyone.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::access::Names;
use super::broker::{QueueClient, SendFailure};
use super::message::Envelope;
use super::peek::{MessageRow, put_back};
use crate::answer::{Answer, Failure};
use crate::interrupt::Interrupt;

const POLL: Duration = Duration::from_millis(500);
/// If more messages than this are waiting, they are not searched: a peek counts as a delivery of each.
const SEARCHED: u64 = 200;

/// Where a message was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SendOutcome {
    Sent,
    Succeeded,
    Failed,
    DeadLettered,
    NotSeen,
    /// The broker may or may not have stored it.
    Unknown,
    /// It was sent, but the user ended the wait.
    Interrupted,
}

impl SendOutcome {
    pub fn answer(self) -> Answer {
        match self {
            Self::Sent | Self::Succeeded => Answer::Fine,
            Self::Failed | Self::DeadLettered => Answer::Findings,
            Self::NotSeen | Self::Unknown => Answer::Unknown,
            Self::Interrupted => Answer::Interrupted,
        }
    }
}

/// What happened to a message.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    pub id: String,
    pub queue: String,
    pub outcome: SendOutcome,
    /// The queue in which it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_in: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageRow>,
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// A queue in which the message may end.
#[derive(Debug)]
struct End {
    queue: String,
    outcome: SendOutcome,
    /// How many messages were waiting at the last count.
    known: u64,
    note: Option<String>,
}

/// How to follow a message.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pub limit: Duration,
    pub with_payload: bool,
}

/// Sends a message, and follows it until an interrupt comes. `listen` starts listening for one once the message cannot
/// be taken back.
///
/// # Errors
/// If the actor's queue does not exist, or the broker does not store the message.
pub async fn send<B: QueueClient>(
    broker: &mut B,
    names: &Names,
    id: &str,
    body: Bytes,
    wait: Option<Wait>,
    listen: impl FnOnce() -> Interrupt,
) -> Result<Sent, Failure> {
    let mut ends = match wait {
        Some(_) => ends(broker, names).await?,
        None => Vec::new(),
    };
    let interrupt = listen();
    let stored = broker.send(&names.queue, id, body).await;
    let mut sent = Sent {
        id: id.to_owned(),
        queue: names.queue.clone(),
        outcome: SendOutcome::Sent,
        seen_in: None,
        message: None,
        notes: Vec::new(),
    };
    match stored {
        Ok(()) => {}
        // A script that retries would send it twice, and needs the id to find out.
        Err(SendFailure::Unconfirmed(why)) => {
            sent.outcome = SendOutcome::Unknown;
            let note = format!("{why}; look for this id before you send the message again");
            sent.notes.push(note);
            return Ok(sent);
        }
        Err(SendFailure::Refused(why)) => return Err(why),
    }
    if let Some(wait) = wait {
        let mut followed = follow(broker, &mut sent, &mut ends, wait, &interrupt).await;
        if sent.outcome == SendOutcome::Interrupted {
            let queue = &names.queue;
            sent.notes.push(format!(
                "interrupted; message {id} was sent to {queue}, and may still be processed"
            ));
            return Ok(sent);
        }
        if followed.is_ok() && sent.outcome == SendOutcome::NotSeen {
            followed = whereabouts(broker, &names.queue)
                .await
                .map(|note| sent.notes.push(note));
        }
        sent.notes
            .extend(ends.into_iter().filter_map(|end| end.note));
        // The broker has stored the message; after a failure, a script would send it again.
        if let Err(why) = followed {
            sent.outcome = SendOutcome::NotSeen;
            let note = format!("the broker has stored the message, but following it failed: {why}");
            sent.notes.push(note);
        }
    }
    Ok(sent)
}

async fn ends<B: QueueClient>(broker: &mut B, names: &Names) -> Result<Vec<End>, Failure> {
    let dlq = names
        .dlq
        .iter()
        .map(|dlq| (&dlq.queue, SendOutcome::DeadLettered));
    let queues = [
        (&names.happy_end, SendOutcome::Succeeded),
        (&names.error_end, SendOutcome::Failed),
    ];
    let mut ends = Vec::new();
    // Messages to an end actor end where they are sent.
    for (queue, outcome) in queues
        .into_iter()
        .chain(dlq)
        .filter(|it| *it.0 != names.queue)
    {
        let size = broker.size(queue).await?;
        ends.push(End {
            queue: queue.clone(),
            outcome,
            known: size.unwrap_or_default().waiting,
            note: None,
        });
    }
    Ok(ends)
}

async fn follow<B: QueueClient>(
    broker: &mut B,
    sent: &mut Sent,
    ends: &mut [End],
    wait: Wait,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let until = Instant::now() + wait.limit;
    loop {
        for end in &mut *ends {
            // Not during a search, which puts back what it takes.
            if interrupt.has_come() {
                sent.outcome = SendOutcome::Interrupted;
                return Ok(());
            }
            if let Some(row) = search(broker, end, &sent.id, wait.with_payload).await? {
                sent.outcome = end.outcome;
                sent.seen_in = Some(end.queue.clone());
                sent.message = Some(row);
                return Ok(());
            }
        }
        if Instant::now() >= until {
            sent.outcome = SendOutcome::NotSeen;
            return Ok(());
        }
        tokio::select! {
            () = sleep(POLL) => {}
            () = interrupt.come() => {
                sent.outcome = SendOutcome::Interrupted;
                return Ok(());
            }
        }
    }
}

/// Where a message may be that was not seen at its end.
async fn whereabouts<B: QueueClient>(broker: &mut B, queue: &str) -> Result<String, Failure> {
    let Some(size) = broker.size(queue).await? else {
        return Ok(format!("there is no queue {queue} any more"));
    };
    let waiting = match size.waiting {
        0 => {
            return Ok(format!(
                "no message waits in {queue}: this one is being processed, or was"
            ));
        }
        1 => "1 message waits".to_owned(),
        count => format!("{count} messages wait"),
    };
    Ok(match size.consumers {
        Some(0) => {
            format!("{waiting} in {queue}, which has no consumers: no sidecar receives them")
        }
        _ => format!("{waiting} in {queue}, this one perhaps among them"),
    })
}

/// Looks for the message if there is a new one that no consumer is about to receive.
async fn search<B: QueueClient>(
    broker: &mut B,
    end: &mut End,
    id: &str,
    with_payload: bool,
) -> Result<Option<MessageRow>, Failure> {
    let queue = &end.queue;
    let Some(size) = broker.size(queue).await? else {
        end.note = Some(format!("there is no queue {queue}"));
        return Ok(None);
    };
    let has_new = size.waiting > std::mem::replace(&mut end.known, size.waiting);
    let consumers = size.consumers.unwrap_or_default();
    end.note = if consumers > 0 {
        Some(format!(
            "consumers of {queue}: {consumers}; they take messages before these can be seen"
        ))
    } else if size.waiting > SEARCHED {
        Some(format!(
            "{} messages wait in {queue}, too many to search",
            size.waiting
        ))
    } else {
        None
    };
    if !has_new || end.note.is_some() {
        return Ok(None);
    }
    let count = usize::try_from(size.waiting).unwrap_or_default();
    let taken = broker.take(queue, count).await?;
    let found = taken
        .iter()
        .find(|it| Envelope::read(&it.body).id.as_deref() == Some(id));
    let row = found.map(|it| MessageRow::new(it, with_payload));
    // If this fails, the broker puts them back itself, and the message was found nevertheless.
    let returned = put_back(broker, queue, taken).await;
    match row {
        Some(row) => Ok(Some(row)),
        None => returned.map(|_| None),
    }
}
