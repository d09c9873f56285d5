//! What becomes of a message: a pure function of the message, of what happened to it, and of the settings (SC-71).

mod rules;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use asya_wire::duration;
use asya_wire::envelope::code;

pub use self::rules::{End, Queues, Rules};
use crate::compose::{self, Error, Keep};
use crate::envelope::{Element, Failure, Message, Reply, Routes, Routing};

/// Pauses before an end actor's handler is called again (SC-70).
const PAUSES_OF_END_ACTORS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// What happened to a message.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It came, and the runtime has not seen it.
    Received,
    /// The runtime's reply.
    Replied(&'a [u8]),
    /// The reply is longer than a message may be; bytes, as the runtime announced.
    ReplyTooLarge(usize),
    /// The runtime did not read all of it (SC-48).
    NotRead,
    /// The runtime ended after it had read all of it (SC-49).
    Ended,
    /// The deadline passed (SC-51).
    TimedOut,
    /// The gateway did not take a final report that is required (SC-90).
    NotReported,
}

/// How often the message was delivered before (SC-34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deliveries {
    /// Never.
    #[default]
    First,
    /// This often.
    Before(u32),
    /// The broker knows only that it was.
    Again,
}

/// What is known about a delivery beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// How often the message was delivered before.
    pub deliveries: Deliveries,
    /// How often this process called the handler of an end actor for this delivery, before the last call.
    pub attempt: usize,
    /// Another call was hung up while this one ran (SC-52).
    pub hung_up_another: bool,
    /// This process is ending.
    pub stopping: bool,
    /// What the broker did not take because of its size, from an earlier decision about this message.
    pub refused: Refused,
}

/// What was too large for the broker so far (SC-83).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Bytes of a result.
    pub result: Option<usize>,
    /// How much the next message to error-end keeps.
    pub keep: Keep,
}

/// What to do, in order. Nothing is acknowledged before all that is to be sent is stored.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand it to the runtime.
    Call,
    /// Hand it to the runtime once more, after a pause.
    CallAgain(Duration),
    /// Publish a message.
    Send(Letter),
    /// Tell the gateway how it ended (SC-88).
    ReportFinal,
    /// Take it off its queue.
    Acknowledge,
    /// Put it back.
    GiveBack(Reason),
    /// Take it off its queue, to the dead letter queue if there is one.
    Reject,
}

/// Why a message goes back: values of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The runtime did not read it.
    NotRead,
    /// The runtime ended with it.
    Crashed,
    /// What came of it could not be stored.
    NotStored,
    /// The process ends.
    Shutdown,
    /// It waited here too long, or others could have it.
    Waited,
    /// Handling it panicked.
    Panicked,
}

/// A message to publish.
#[derive(Debug, PartialEq, Eq)]
pub struct Letter {
    /// The actor whose queue it goes to.
    pub actor: String,
    /// Which role of an actor that is.
    pub kind: Kind,
    /// The message's id.
    pub id: String,
    /// The message.
    pub body: Vec<u8>,
}

/// What a message is sent as: the metric's label `message_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To the next actor.
    Routing,
    /// To happy-end.
    HappyEnd,
    /// To error-end.
    ErrorEnd,
}

/// How a message ended, for metrics and log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has not ended.
    Open,
    /// Its results are sent.
    Success,
    /// Nothing came of it.
    EmptyResponse,
    /// An end actor has handled it.
    EndConsumed,
    /// It failed.
    Failed(Fault),
}

/// Why a message failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The metric's label.
    pub reason: &'static str,
    /// The kind of error of the runtime, if it is one (SC-92).
    pub runtime: Option<&'static str>,
    /// For log lines; quotes nothing of the message.
    pub text: String,
}

/// What becomes of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub actions: Vec<Action>,
    /// How it ended.
    pub verdict: Verdict,
}

/// Decides what becomes of a message.
#[must_use]
pub fn decide(rules: &Rules, body: &[u8], outcome: Outcome<'_>, facts: &Facts) -> Decision {
    match &rules.end {
        Some(_) => at_end(body, outcome, facts),
        None => on_the_way(&Case { rules, body, facts }, outcome),
    }
}

/// A message that is not at its end, and what is known about it.
struct Case<'a> {
    rules: &'a Rules,
    body: &'a [u8],
    facts: &'a Facts,
}

fn on_the_way(case: &Case<'_>, outcome: Outcome<'_>) -> Decision {
    let size = case.body.len();
    if size > case.rules.max_message_size {
        return case.too_large(size, Keep::NoPayload);
    }
    let source = match Message::read(case.body) {
        Ok(source) => source,
        Err(wrong) => {
            let text = format!("Failed to parse message: {wrong}");
            return case.refuse(None, code::PARSE_ERROR, &text);
        }
    };
    match outcome {
        Outcome::Received => admit(case, &source),
        Outcome::Replied(reply) => route(case, &source, reply),
        Outcome::ReplyTooLarge(size) => case.too_large(size, Keep::All),
        Outcome::NotRead | Outcome::NotReported => give_back(Reason::NotRead),
        Outcome::Ended => crashed(case, &source),
        Outcome::TimedOut => {
            let text = format!(
                "Runtime timeout exceeded after {}",
                duration::format(case.rules.timeout)
            );
            let fault = Fault {
                reason: code::RUNTIME_ERROR,
                runtime: Some("timeout"),
                text: text.clone(),
            };
            case.to_error_end(
                Some(&source),
                &Error {
                    text: &text,
                    ..Error::default()
                },
                fault,
            )
        }
    }
}

/// Whether the runtime may have the message (SC-2, SC-61).
fn admit(case: &Case<'_>, source: &Message<'_>) -> Decision {
    match &source.routing {
        Routing::LaterGeneration => {
            let text = "the message has a route of a later generation, with curr instead of actors and current";
            return case.coded(source, code::UNSUPPORTED_GENERATION, text, None);
        }
        Routing::Invalid(wrong) => {
            let text = format!("Failed to parse message: {wrong}");
            return case.refuse(Some(source), code::PARSE_ERROR, &text);
        }
        Routing::Missing | Routing::Route(_) => {}
    }
    if source.id.is_none() {
        let text = "Message missing required 'id' field";
        return case.refuse(Some(source), code::VALIDATION_ERROR, text);
    }
    let (expected, actual) = (&case.rules.actor, source.routing.current_actor());
    if actual != expected {
        let text = format!(
            "Route mismatch: message routed to wrong actor (expected: {expected}, actual: {actual})"
        );
        return case.refuse(Some(source), code::ROUTE_MISMATCH, &text);
    }
    Decision {
        actions: vec![Action::Call],
        verdict: Verdict::Open,
    }
}

/// Where a reply goes (SC-62 to SC-65).
fn route(case: &Case<'_>, source: &Message<'_>, reply: &[u8]) -> Decision {
    let elements = match Reply::read(reply, Routes::Required) {
        Ok(Reply::Results(elements)) => elements,
        Ok(Reply::Failed(failure)) => return handler_failed(case, source, &failure),
        Err(text) => return case.coded(source, code::INVALID_REPLY, &text, Some("invalid_reply")),
    };
    if let Some(size) = case.facts.refused.result {
        return case.too_large(size, Keep::All);
    }
    let id = source.id.unwrap_or("\"\"");
    if elements.is_empty() {
        let letter = case.rules.to_happy_end(id, compose::unchanged(source, id));
        return sent(vec![Action::Send(letter)], Verdict::EmptyResponse);
    }
    let letters = elements
        .iter()
        .enumerate()
        .map(|(index, element)| case.letter(source, id, element, index));
    match letters.collect() {
        Ok(letters) => sent(letters, Verdict::Success),
        Err(text) => case.coded(source, code::INVALID_DESTINATION, &text, None),
    }
}

fn handler_failed(case: &Case<'_>, source: &Message<'_>, failure: &Failure<'_>) -> Decision {
    let text = serde_json::from_str::<String>(&failure.code).unwrap_or_default();
    let fault = Fault {
        reason: code::RUNTIME_ERROR,
        runtime: Some("execution_error"),
        text,
    };
    let error = Error {
        text: &failure.code,
        details: failure.details,
        ..Error::default()
    };
    case.to_error_end(Some(source), &error, fault)
}

/// The runtime ended with the message (SC-49, SC-52).
fn crashed(case: &Case<'_>, source: &Message<'_>) -> Decision {
    let retries_left = match case.facts.deliveries {
        Deliveries::First => case.rules.crash_retries > 0,
        Deliveries::Before(times) => times < case.rules.crash_retries,
        Deliveries::Again => false,
    };
    if retries_left || case.facts.hung_up_another {
        return give_back(Reason::Crashed);
    }
    let text = "the runtime ended while it worked on the message";
    case.coded(source, code::RUNTIME_CRASHED, text, Some("crashed"))
}

/// A message of an end actor: nothing of it is routed (SC-68 to SC-70).
fn at_end(body: &[u8], outcome: Outcome<'_>, facts: &Facts) -> Decision {
    let fault = |runtime, text: &str| Fault {
        reason: code::RUNTIME_ERROR,
        runtime,
        text: text.to_owned(),
    };
    match outcome {
        Outcome::Received => Decision {
            actions: vec![Action::Call],
            verdict: Verdict::Open,
        },
        Outcome::NotRead => give_back(Reason::NotRead),
        Outcome::Ended if facts.hung_up_another => give_back(Reason::Crashed),
        Outcome::Ended => once_more(
            facts,
            fault(
                Some("crashed"),
                "the runtime ended while it worked on the message",
            ),
        ),
        Outcome::TimedOut => once_more(facts, fault(Some("timeout"), "Runtime timeout exceeded")),
        Outcome::NotReported => once_more(
            facts,
            fault(None, "the gateway did not take the final report"),
        ),
        Outcome::ReplyTooLarge(_) => end_consumed(body),
        Outcome::Replied(reply) => match Reply::read(reply, Routes::Ignored) {
            Ok(Reply::Results(_)) => end_consumed(body),
            Ok(Reply::Failed(failure)) => {
                once_more(facts, fault(Some("execution_error"), &failure.code))
            }
            Err(text) => once_more(facts, fault(Some("invalid_reply"), &text)),
        },
    }
}

fn end_consumed(body: &[u8]) -> Decision {
    let has_id = Message::read(body).is_ok_and(|message| message.id.is_some());
    let report = has_id.then_some(Action::ReportFinal);
    let actions = report.into_iter().chain([Action::Acknowledge]).collect();
    Decision {
        actions,
        verdict: Verdict::EndConsumed,
    }
}

fn once_more(facts: &Facts, fault: Fault) -> Decision {
    if facts.stopping {
        return give_back(Reason::Shutdown);
    }
    match PAUSES_OF_END_ACTORS.get(facts.attempt) {
        Some(pause) => Decision {
            actions: vec![Action::CallAgain(*pause)],
            verdict: Verdict::Open,
        },
        None => Decision {
            actions: vec![Action::Reject],
            verdict: Verdict::Failed(fault),
        },
    }
}

fn give_back(reason: Reason) -> Decision {
    Decision {
        actions: vec![Action::GiveBack(reason)],
        verdict: Verdict::Open,
    }
}

fn sent(mut actions: Vec<Action>, verdict: Verdict) -> Decision {
    actions.push(Action::Acknowledge);
    Decision { actions, verdict }
}

impl Case<'_> {
    fn letter(
        &self,
        source: &Message<'_>,
        id: &str,
        element: &Element<'_>,
        index: usize,
    ) -> Result<Action, String> {
        let body = compose::result(source, id, element, index);
        let id = compose::id_of_element(id, index);
        let Some(actor) = element.routing.current_actor() else {
            return Ok(Action::Send(self.rules.to_happy_end(&id, body)));
        };
        if !self.rules.has_queue(actor) {
            return Err(format!(
                "element {index}: the actor's name cannot be that of a queue"
            ));
        }
        Ok(Action::Send(Letter {
            actor: actor.to_owned(),
            kind: Kind::Routing,
            id: rules::text_of(&id),
            body,
        }))
    }

    /// An error that is told by its text, as the former sidecar does.
    fn refuse(&self, source: Option<&Message<'_>>, reason: &'static str, text: &str) -> Decision {
        let fault = Fault {
            reason,
            runtime: None,
            text: told_of(reason, text),
        };
        self.to_error_end(
            source,
            &Error {
                text,
                ..Error::default()
            },
            fault,
        )
    }

    /// An error that is told by its code.
    fn coded(
        &self,
        source: &Message<'_>,
        code: &'static str,
        text: &str,
        runtime: Option<&'static str>,
    ) -> Decision {
        let fault = Fault {
            reason: code,
            runtime,
            text: text.to_owned(),
        };
        self.to_error_end(
            Some(source),
            &Error {
                text: code,
                message: Some(text),
                ..Error::default()
            },
            fault,
        )
    }

    fn too_large(&self, size: usize, keep: Keep) -> Decision {
        let source = Message::read(self.body).ok();
        let error = Error {
            text: code::MESSAGE_TOO_LARGE,
            original_size: Some(size),
            ..Error::default()
        };
        let text = format!("{size} bytes are more than the broker or ASYA_MAX_MESSAGE_SIZE allows");
        let fault = Fault {
            reason: code::MESSAGE_TOO_LARGE,
            runtime: None,
            text,
        };
        self.to_error_end_keeping(source.as_ref(), &error, fault, keep)
    }

    fn to_error_end(
        &self,
        source: Option<&Message<'_>>,
        error: &Error<'_>,
        fault: Fault,
    ) -> Decision {
        self.to_error_end_keeping(source, error, fault, Keep::All)
    }

    fn to_error_end_keeping(
        &self,
        source: Option<&Message<'_>>,
        error: &Error<'_>,
        fault: Fault,
        keep: Keep,
    ) -> Decision {
        let keep = keep.max(self.facts.refused.keep);
        let body = compose::failed(self.body, source, error, keep);
        let id = source.and_then(Message::id_text).unwrap_or_default();
        let actor = self.rules.error_end.clone();
        let letter = Letter {
            actor,
            kind: Kind::ErrorEnd,
            id,
            body,
        };
        sent(vec![Action::Send(letter)], Verdict::Failed(fault))
    }
}

/// A parser's message may quote the input, so log lines have the reason alone.
fn told_of(reason: &str, text: &str) -> String {
    if reason == code::PARSE_ERROR {
        "not a message: it is no JSON object in UTF-8, or its route is none".to_owned()
    } else {
        text.to_owned()
    }
}

impl Refused {
    /// After the broker did not take a message of this kind. `None`: nothing smaller can be made.
    #[must_use]
    pub fn and(self, kind: Kind, size: usize) -> Option<Self> {
        match (kind, self.keep) {
            (Kind::Routing | Kind::HappyEnd, keep) => Some(Self {
                result: Some(size),
                keep,
            }),
            (Kind::ErrorEnd, Keep::All) => Some(Self {
                keep: Keep::LessTraceback,
                ..self
            }),
            (Kind::ErrorEnd, Keep::LessTraceback) => Some(Self {
                keep: Keep::NoPayload,
                ..self
            }),
            (Kind::ErrorEnd, Keep::NoPayload) => None,
        }
    }
}
