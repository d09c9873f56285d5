//! Messages of end actors.

use std::time::Duration;

use asya_wire::envelope::code;

use super::{Action, Decision, Facts, Fault, Outcome, Reason, Verdict, give_back};
use crate::envelope::{Message, Reply, Routes};

/// Pauses before the handler is called again (SC-70).
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// A message of an end actor: nothing of it is routed (SC-68 to SC-70).
pub(super) fn at_end(body: &[u8], outcome: Outcome<'_>, facts: &Facts) -> Decision {
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
    match PAUSES.get(facts.attempt) {
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
