//! Messages of actors that are not end actors.

use asya_wire::duration;
use asya_wire::envelope::code;

use super::{
    Action, Body, Decision, Deliveries, DeliveryState, Fault, Kind, OtherCalls, Outcome,
    OutgoingMessage, Reason, Rules, Verdict, call_alone, requeue, rules, sent,
};
use crate::compose::{self, Error, Keep};
use crate::envelope::{Element, Failure, Message, Reply, Routes, Routing};

/// A message of an intermediate actor, with its delivery state.
pub(super) struct Case<'a> {
    pub(super) rules: &'a Rules,
    pub(super) body: Body<'a>,
    pub(super) state: &'a DeliveryState,
}

pub(super) fn intermediate_actor(case: &Case<'_>, outcome: Outcome<'_>) -> Decision {
    let whole = Some(case.body.received.len()).filter(|size| *size > case.rules.max_message_size);
    if let Some(size) = case.state.size.or(whole) {
        return case.too_large(size, Keep::NoPayload);
    }
    let source = match Message::read(case.body.request) {
        Ok(source) => source,
        Err(error) => {
            let text = format!("Failed to parse message: {error}");
            return case.refuse(None, code::PARSE_ERROR, &text);
        }
    };
    match outcome {
        Outcome::Received => admit(case, &source),
        Outcome::Replied(reply) => route(case, &source, reply),
        Outcome::ReplyTooLarge(size) => case.too_large(size, Keep::All),
        Outcome::NotRead if case.state.alone && !case.state.stopping => call_alone(),
        Outcome::NotRead | Outcome::NotReported => requeue(Reason::NotRead),
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

/// Validates a message before it is sent to the runtime (SC-2, SC-61).
fn admit(case: &Case<'_>, source: &Message<'_>) -> Decision {
    match &source.routing {
        Routing::LaterFormat => {
            let text = "unsupported route format of a later generation: it has curr instead of actors and current";
            return case.coded(source, code::UNSUPPORTED_GENERATION, text, None);
        }
        Routing::Invalid(error) => {
            let text = format!("Failed to parse message: {error}");
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

/// Routes a reply (SC-62 to SC-65).
fn route(case: &Case<'_>, source: &Message<'_>, reply: &[u8]) -> Decision {
    let elements = match Reply::read(reply, Routes::Required) {
        Ok(Reply::Results(elements)) => elements,
        Ok(Reply::Failed(failure)) => return handler_failed(case, source, &failure),
        Err(text) => return case.coded(source, code::INVALID_REPLY, &text, Some("invalid_reply")),
    };
    if let Some(size) = case.state.refused.result {
        return case.too_large(size, Keep::All);
    }
    let id = source.id.unwrap_or("\"\"");
    if elements.is_empty() {
        let message = case.rules.to_happy_end(id, compose::unchanged(source, id));
        return sent(vec![Action::Send(message)], Verdict::EmptyResponse);
    }
    let messages = elements
        .iter()
        .enumerate()
        .map(|(index, element)| case.message(source, id, element, index));
    match messages.collect() {
        Ok(messages) => sent(messages, Verdict::Success),
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

/// Decides about a message whose call ended because the runtime terminated (SC-49, SC-52).
fn crashed(case: &Case<'_>, source: &Message<'_>) -> Decision {
    // The pod is terminating, and its runtime with it, so the message is not to blame (SC-82).
    if case.state.stopping {
        return requeue(Reason::Shutdown);
    }
    match case.state.others {
        OtherCalls::TimedOut => return requeue(Reason::OtherTimedOut),
        OtherCalls::Open => return call_alone(),
        OtherCalls::None => {}
    }
    let retries_left = match case.state.deliveries {
        Deliveries::First => case.rules.crash_retries > 0,
        Deliveries::Before(times) => times < case.rules.crash_retries,
        Deliveries::Redelivered => false,
    };
    if retries_left {
        return requeue(Reason::RuntimeCrashed);
    }
    let text = "the runtime terminated while processing the message";
    case.coded(source, code::RUNTIME_CRASHED, text, Some("crashed"))
}

impl Case<'_> {
    fn message(
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
                "element {index}: the actor name does not yield a valid queue name"
            ));
        }
        Ok(Action::Send(OutgoingMessage {
            actor: actor.to_owned(),
            kind: Kind::Routing,
            id: rules::text_of(&id),
            body,
        }))
    }

    /// Reports an error to error-end as text, like the Go sidecar.
    fn refuse(&self, source: Option<&Message<'_>>, reason: &'static str, text: &str) -> Decision {
        let fault = Fault {
            reason,
            runtime: None,
            text: log_text(reason, text),
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

    /// Reports an error to error-end as a code.
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
        let source = match self.state.size {
            Some(_) => Some(Message::read_beginning(self.body.request)),
            None => Message::read(self.body.request).ok(),
        };
        let error = Error {
            text: code::MESSAGE_TOO_LARGE,
            original_size: Some(size),
            ..Error::default()
        };
        let text = format!("{size} bytes exceed the limit of the broker or ASYA_MAX_MESSAGE_SIZE");
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
        let keep = keep.max(self.state.refused.keep);
        let body = compose::failed(self.body.received, source, error, keep);
        let id = source.and_then(Message::id_text).unwrap_or_default();
        let actor = self.rules.error_end.clone();
        let message = OutgoingMessage {
            actor,
            kind: Kind::ErrorEnd,
            id,
            body,
        };
        sent(vec![Action::Send(message)], Verdict::Failed(fault))
    }
}

/// Omits parser errors, which may quote the input.
fn log_text(reason: &str, text: &str) -> String {
    if reason == code::PARSE_ERROR {
        "invalid message: not a JSON object in UTF-8, or its route is invalid".to_owned()
    } else {
        text.to_owned()
    }
}
