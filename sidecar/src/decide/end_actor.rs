//! Messages of end actors.

use std::time::Duration;

use asya_wire::envelope::code;

use super::{
    Action, Decision, Deliveries, DeliveryState, Fault, OtherCalls, Outcome, Reason, Verdict,
    call_alone, requeue,
};
use crate::envelope::{Message, Reply, Routes};

/// Delays before the handler is retried (SC-70).
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Decides about a message of an end actor, whose replies are not routed (SC-68 to SC-70).
pub(super) fn end_actor(body: &[u8], outcome: Outcome<'_>, state: &DeliveryState) -> Decision {
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
        Outcome::NotRead if state.alone && !state.stopping => call_alone(),
        Outcome::NotRead => requeue(Reason::NotRead),
        Outcome::Ended if state.others == OtherCalls::TimedOut => requeue(Reason::OtherTimedOut),
        Outcome::Ended if state.others == OtherCalls::Open && !state.stopping => call_alone(),
        Outcome::Ended => retry(
            state,
            fault(
                Some("crashed"),
                "the runtime terminated while processing the message",
            ),
        ),
        // The queue must count this attempt: the process may exit because of it, and loses its own count (SC-52).
        Outcome::TimedOut if state.stopping => requeue(Reason::TimedOut),
        Outcome::TimedOut => retry_after(
            timeouts_before(state),
            state,
            fault(Some("timeout"), "Runtime timeout exceeded"),
        ),
        Outcome::NotReported if state.stopping => requeue(Reason::Shutdown),
        // The handler has succeeded, so this is not a failed attempt (SC-90).
        Outcome::NotReported => requeue(Reason::NotReported),
        // It may be the message, which has no limit here (SC-68).
        Outcome::ReplyTooLarge(_) if state.runtime_ends => requeue(Reason::NotRead),
        Outcome::ReplyTooLarge(_) => end_consumed(body),
        // A handler may also return whole envelopes. Whatever it means by that, processing such a message twice loses
        // nothing.
        Outcome::Replied(reply) if state.runtime_ends && is_given_back(body, reply) => {
            requeue(Reason::NotRead)
        }
        Outcome::Replied(reply) => match Reply::read(reply, Routes::Ignored) {
            Ok(Reply::Results(_)) => end_consumed(body),
            Ok(Reply::Failed(failure)) => {
                retry(state, fault(Some("execution_error"), &failure.code))
            }
            Err(text) => retry(state, fault(Some("invalid_reply"), &text)),
        },
    }
}

/// Whether the runtime has replied with the message itself, to have another pod process it (RUN-20).
fn is_given_back(body: &[u8], reply: &[u8]) -> bool {
    let has_succeeded = matches!(Reply::read(reply, Routes::Ignored), Ok(Reply::Results(_)));
    let leads_back = |source: Message<'_>| Reply::leads_back(reply, &source);
    has_succeeded && Message::read(body).is_ok_and(leads_back)
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

/// How many earlier attempts may have timed out, in this process or a previous one.
fn timeouts_before(state: &DeliveryState) -> usize {
    let earlier = match state.deliveries {
        Deliveries::First => 0,
        Deliveries::Before(times) => usize::try_from(times).unwrap_or(usize::MAX),
        Deliveries::Redelivered => RETRY_DELAYS.len(),
    };
    earlier.saturating_add(state.attempt)
}

fn retry(state: &DeliveryState, fault: Fault) -> Decision {
    retry_after(state.attempt, state, fault)
}

/// Retries the handler unless it has failed too often, where `attempts` counts its earlier attempts.
fn retry_after(attempts: usize, state: &DeliveryState, fault: Fault) -> Decision {
    if state.stopping {
        return requeue(Reason::Shutdown);
    }
    match RETRY_DELAYS.get(attempts) {
        Some(delay) => Decision {
            actions: vec![Action::CallAgain(*delay)],
            verdict: Verdict::Open,
        },
        None => Decision {
            actions: vec![Action::Reject],
            verdict: Verdict::Failed(fault),
        },
    }
}
