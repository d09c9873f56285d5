//! Messages of actors that are not at the end of routes.

use asya_wire::duration;
use asya_wire::envelope::code;

use super::{
    Action, Decision, Deliveries, Facts, Fault, Kind, Letter, Outcome, Reason, Rules, Verdict,
    give_back, rules, sent,
};
use crate::compose::{self, Error, Keep};
use crate::envelope::{Element, Failure, Message, Reply, Routes, Routing};

/// A message that is not at its end, and what is known about it.
pub(super) struct Case<'a> {
    pub(super) rules: &'a Rules,
    pub(super) body: &'a [u8],
    pub(super) facts: &'a Facts,
}

pub(super) fn on_the_way(case: &Case<'_>, outcome: Outcome<'_>) -> Decision {
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
