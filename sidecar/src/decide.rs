//! What becomes of a message: a pure function of the message, of what happened to it, and of the settings (SC-71).

mod at_end;
mod on_the_way;
mod rules;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::at_end::at_end;
use self::on_the_way::{Case, on_the_way};
pub use self::rules::{End, Queues, Rules};
use crate::compose::Keep;

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
