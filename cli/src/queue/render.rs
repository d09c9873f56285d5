//! Queues and messages as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::access::{DeadLetters, Names};
use super::broker::Size;
use super::dlq::DlqOutcome;
use super::message::route;
use super::peek::{MessageRow, Payload};
use super::send::{SendOutcome, Sent};
use crate::args::queue::DlqAction;
use crate::output::{Paint, Table, escaped, wrapped};

/// An actor's queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuePage {
    pub actor: String,
    pub transport: String,
    pub queue: String,
    pub waiting: u64,
    /// Messages held by consumers, as reported by the broker or else by the actor's status.
    pub processing: Option<i64>,
    pub consumers: Option<u64>,
    pub dead_letter_queue: Option<String>,
    pub dead_letters: Option<u64>,
    pub messages: Vec<MessageRow>,
}

impl QueuePage {
    pub fn new(
        actor: String,
        names: &Names,
        size: Size,
        dead_letters: Option<u64>,
        messages: Vec<MessageRow>,
    ) -> Self {
        Self {
            actor,
            transport: names.transport.clone(),
            queue: names.queue.clone(),
            waiting: size.waiting,
            processing: size.processing.and_then(|count| i64::try_from(count).ok()),
            consumers: size.consumers,
            dead_letter_queue: names.dlq.as_ref().map(|dlq| dlq.queue.clone()),
            dead_letters,
            messages,
        }
    }
}

/// What happened to an actor's dead letters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DlqReport {
    pub queue: String,
    pub dead_letter_queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Absent unless messages are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<MessageRow>>,
    #[serde(flatten)]
    pub outcome: Option<DlqOutcome>,
    /// Dead letters that others hold, if the broker reports them.
    #[serde(skip)]
    pub held: u64,
    #[serde(skip)]
    action: DlqAction,
}

impl DlqReport {
    pub fn new(action: DlqAction, names: &Names, dlq: &DeadLetters) -> Self {
        Self {
            queue: names.queue.clone(),
            dead_letter_queue: dlq.queue.clone(),
            waiting: None,
            messages: None,
            outcome: None,
            held: 0,
            action,
        }
    }
}

pub fn page(page: &QueuePage, width: Option<usize>) -> String {
    let count =
        |number: Option<i64>| number.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
    let consumers = page.consumers.and_then(|it| i64::try_from(it).ok());
    let mut details = Table::new(&["", ""]);
    details.row(["queue", &format!("{} on {}", page.queue, page.transport)]);
    details.row(["waiting", &page.waiting.to_string()]);
    details.row(["in process", &count(page.processing)]);
    if consumers.is_some() {
        details.row(["consumers", &count(consumers)]);
    }
    let dead_letters = match (&page.dead_letter_queue, page.dead_letters) {
        (Some(queue), Some(count)) => format!("{count} in {queue}"),
        (Some(queue), None) => format!("no queue {queue}"),
        (None, _) => "no dead letter queue".to_owned(),
    };
    details.row(["dead letters", &dead_letters]);
    let title = lines(&format!("AsyncActor {}", page.actor), width);
    let mut text = title + &details.render(width);
    if !page.messages.is_empty() {
        text.push('\n');
        text.push_str(&messages(&page.messages, width));
    }
    text
}

/// Renders an actor's dead letters, or what happened to them.
pub fn dead_letters(report: &DlqReport, width: Option<usize>) -> String {
    let (dlq, queue) = (&report.dead_letter_queue, &report.queue);
    let Some(outcome) = report.outcome else {
        let waiting = report.waiting.unwrap_or_default();
        let rows = report.messages.as_deref().unwrap_or_default();
        let head = format!("{dlq}: {} shown of {waiting}", rows.len());
        let head = lines(&head, width);
        if rows.is_empty() {
            return head;
        }
        return format!("{head}\n{}", messages(rows, width));
    };
    let DlqOutcome { done, others, .. } = outcome;
    let is_idle = done == 0 && others == 0 && !outcome.interrupted;
    let left = remarks(&outcome, dlq);
    let text = match report.action {
        _ if is_idle && report.held > 0 => format!(
            "nothing was done: other consumers hold the messages of {dlq} now: {}; try again in a minute",
            report.held
        ),
        _ if is_idle => format!("nothing to do: {dlq} has no messages"),
        DlqAction::Purge => format!("messages deleted from {dlq}: {done}{left}"),
        _ => format!("messages moved from {dlq} to {queue}: {done}{left}"),
    };
    lines(&text, width)
}

/// What happened to an actor's dead letters before the user ended the command, on one line.
pub fn interrupted(report: &DlqReport) -> String {
    format!("interrupted; {}", dead_letters(report, None).trim_end())
}

/// Other remarks about an outcome.
fn remarks(outcome: &DlqOutcome, dlq: &str) -> String {
    let mut text = String::new();
    if outcome.others > 0 {
        let _ = write!(text, "; left there, of other actors: {}", outcome.others);
    }
    if outcome.may_remain > 0 {
        let _ = write!(
            text,
            "; {} of them may still be in {dlq}, too: that took longer than the broker hides messages",
            outcome.may_remain
        );
    }
    text
}

/// Renders what happened to a message.
pub fn sent(sent: &Sent, width: Option<usize>) -> String {
    let (id, queue) = (&sent.id, &sent.queue);
    let seen_in = sent.seen_in.as_deref().unwrap_or_default();
    let first = if sent.outcome == SendOutcome::Unknown {
        format!("message {id} may be in {queue}: the broker has not confirmed it")
    } else {
        format!("message {id} sent to {queue}")
    };
    let mut parts = vec![first];
    parts.extend(match sent.outcome {
        SendOutcome::Sent | SendOutcome::Unknown | SendOutcome::Interrupted => None,
        SendOutcome::Succeeded => Some(format!("succeeded: it is in {seen_in}")),
        SendOutcome::Failed => Some(format!("failed: it is in {seen_in}")),
        SendOutcome::DeadLettered => Some(format!("dead-lettered: it is in {seen_in}")),
        SendOutcome::NotSeen => Some("it was not seen at its end".to_owned()),
    });
    let message = sent.message.as_ref();
    let failed = message.filter(|_| sent.outcome == SendOutcome::Failed);
    let error = failed.and_then(|it| it.error.as_ref());
    parts.extend(error.map(|error| format!("error: {}", one_line(error))));
    let payload = message.and_then(|it| it.payload.as_ref());
    parts.extend(payload.map(shown));
    parts.iter().map(|line| lines(line, width)).collect()
}

/// A text with a final line break, wrapped to the width.
fn lines(text: &str, width: Option<usize>) -> String {
    let lines = wrapped(text, width);
    lines
        .into_iter()
        .flat_map(|line| [line, "\n".to_owned()])
        .collect()
}

/// A payload; line breaks between its fields are kept.
fn shown(payload: &Payload) -> String {
    escaped(&payload.text()).into_owned()
}

/// A text from a message, on one line.
fn one_line(text: &str) -> String {
    escaped(text).replace('\n', "\\n")
}

/// A table of messages, without columns that are empty for all of them.
fn messages(rows: &[MessageRow], width: Option<usize>) -> String {
    type Column = (&'static str, fn(&MessageRow) -> String);
    let columns: [Column; 7] = [
        ("ID", |row| {
            row.id.as_deref().map_or_else(|| "-".to_owned(), one_line)
        }),
        ("DELIVERIES", |row| {
            row.deliveries.map_or_else(String::new, |it| it.to_string())
        }),
        ("BYTES", |row| row.bytes.to_string()),
        ("FROM", |row| {
            one_line(row.source.as_deref().unwrap_or_default())
        }),
        ("ERROR", |row| {
            one_line(row.error.as_deref().unwrap_or_default())
        }),
        ("ROUTE", |row| one_line(&route(&row.route, row.current))),
        ("PAYLOAD", |row| {
            row.payload.as_ref().map_or_else(String::new, shown)
        }),
    ];
    let used = columns.into_iter();
    let used: Vec<Column> = used
        .filter(|column| rows.iter().any(|row| !column.1(row).is_empty()))
        .collect();
    let headers: Vec<&str> = used.iter().map(|column| column.0).collect();
    let mut table = Table::new(&headers);
    for row in rows {
        table.painted(used.iter().map(|column| (column.1(row), Paint::Plain)));
    }
    table.render(width)
}

#[cfg(test)]
mod tests {
    use super::super::broker::Delivery;
    use super::*;

    fn text(action: DlqAction, done: u64, others: u64, may_remain: u64) -> String {
        let names = Names {
            transport: "mq".to_owned(),
            queue: "asya-embed".to_owned(),
            dlq: None,
            actor: "embed".to_owned(),
            happy_end: String::new(),
            error_end: String::new(),
        };
        let dlq = DeadLetters {
            queue: "dlq".to_owned(),
            shared: true,
        };
        let mut report = DlqReport::new(action, &names, &dlq);
        report.outcome = Some(DlqOutcome {
            done,
            others,
            may_remain,
            interrupted: false,
        });
        dead_letters(&report, None)
    }

    #[test]
    fn empty_dead_letter_queue_is_said_to_be_empty() {
        for (action, done, others, may_remain, expected) in [
            (
                DlqAction::Redrive,
                0,
                0,
                0,
                "nothing to do: dlq has no messages\n",
            ),
            (
                DlqAction::Purge,
                0,
                0,
                0,
                "nothing to do: dlq has no messages\n",
            ),
            (
                DlqAction::Redrive,
                0,
                2,
                0,
                "messages moved from dlq to asya-embed: 0; left there, of other actors: 2\n",
            ),
            (
                DlqAction::Redrive,
                3,
                2,
                1,
                "messages moved from dlq to asya-embed: 3; left there, of other actors: 2; 1 of them may still be in \
                 dlq, too: that took longer than the broker hides messages\n",
            ),
            (DlqAction::Purge, 3, 0, 0, "messages deleted from dlq: 3\n"),
        ] {
            let found = text(action, done, others, may_remain);
            assert_eq!(found, expected, "{action:?}");
        }
    }

    /// The sender of a message must not be able to control the user's terminal.
    #[test]
    fn control_characters_of_messages_do_not_reach_the_terminal() {
        let body = r#"{"id":"a\u001b[2J\nb","route":{"actors":["x\u009b1m"],"current":0},"payload":{"error":"e\r\u0007"}}"#;
        let delivery = Delivery {
            handle: (),
            id: None,
            deliveries: None,
            source: None,
            body: body.into(),
        };
        let row = MessageRow::new(&delivery, true);
        let text = messages(&[row], None);
        let is_odd = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(is_odd), "{text:?}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
