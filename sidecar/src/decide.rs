//! Decides how a message is processed: a pure function of the message, the outcome so far, and the settings (SC-71).

mod end_actor;
mod intermediate_actor;
mod rules;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::end_actor::end_actor;
use self::intermediate_actor::{Case, intermediate_actor};
pub use self::rules::{EndActor, Queues, Rules};
use crate::compose::Keep;

/// The outcome that a decision is based on.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// Delivered, and not yet sent to the runtime.
    Received,
    /// The runtime's reply.
    Replied(&'a [u8]),
    /// The announced reply size, in bytes, exceeds the limit.
    ReplyTooLarge(usize),
    /// The runtime did not read the whole message (SC-48).
    NotRead,
    /// The runtime terminated after reading the message (SC-49).
    Ended,
    /// The deadline was exceeded (SC-51).
    TimedOut,
    /// The gateway did not accept a required final report (SC-90).
    NotReported,
}

/// How often the message was delivered before (SC-34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deliveries {
    /// Never.
    #[default]
    First,
    /// This many times.
    Before(u32),
    /// At least once; the broker does not count.
    Redelivered,
}

/// Other calls that bear on a call that ended because the runtime terminated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherCalls {
    /// None.
    #[default]
    None,
    /// Some were open, so any of their messages may be the cause (SC-49).
    Open,
    /// One has timed out, upon which the runtime exits (SC-52).
    TimedOut,
}

/// The state of a delivery, apart from its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryState {
    /// How often the message was delivered before.
    pub deliveries: Deliveries,
    /// The size of the message in bytes, if the body is only its beginning, since it is too large.
    pub size: Option<usize>,
    /// Retries of an end actor's handler for this delivery by this process.
    pub attempt: usize,
    /// Of other calls, when the last one for this message ended.
    pub others: OtherCalls,
    /// The runtime is called for this message only while no other call is open (SC-49).
    pub alone: bool,
    /// This process is shutting down.
    pub stopping: bool,
    /// The runtime of an end actor has withdrawn its ready file, so it may have given the message back (RUN-20).
    pub runtime_ends: bool,
    /// What the broker refused as too large after an earlier decision about this message.
    pub refused: Refused,
}

/// Publications that the broker has refused as too large (SC-83).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Size of a refused result, in bytes.
    pub result: Option<usize>,
    /// How much the next message to error-end keeps.
    pub keep: Keep,
}

/// Actions, in order. The message is acknowledged only after all publications are confirmed.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Call the runtime.
    Call,
    /// Call the runtime again while no other call is open.
    CallAlone,
    /// Call the runtime again after a delay.
    CallAgain(Duration),
    /// Publish a message.
    Send(OutgoingMessage),
    /// Send the final report to the gateway (SC-88).
    ReportFinal,
    /// Acknowledge the message.
    Acknowledge,
    /// Return the message to its queue.
    Requeue(Reason),
    /// Reject without requeue, which dead-letters the message if a DLQ is configured.
    Reject,
}

/// Why a message is requeued; values of the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The runtime did not read the message.
    NotRead,
    /// The runtime crashed while processing it.
    Crashed,
    /// The runtime terminated while processing it because the call for another message timed out (SC-52).
    OtherTimedOut,
    /// Publishing its results failed.
    PublishFailed,
    /// The gateway did not accept its final report.
    NotReported,
    /// The process is shutting down.
    Shutdown,
    /// The process is shutting down, maybe because the call for this message timed out (SC-52).
    TimedOut,
    /// It was prefetched and waited too long for a slot.
    Waited,
    /// Processing it panicked.
    Panicked,
}

impl Reason {
    /// Whether processing the message failed, which counts towards the queue's delivery limit (SC-34).
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::Crashed
            | Self::PublishFailed
            | Self::NotReported
            | Self::TimedOut
            | Self::Panicked => true,
            Self::NotRead | Self::OtherTimedOut | Self::Shutdown | Self::Waited => false,
        }
    }
}

/// A message to publish.
#[derive(Debug, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The destination actor.
    pub actor: String,
    /// The role of the destination.
    pub kind: Kind,
    /// The message's id.
    pub id: String,
    /// The message body.
    pub body: Vec<u8>,
}

/// The role of a destination; the metric label `message_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// To the next actor.
    Routing,
    HappyEnd,
    ErrorEnd,
}

/// The result of processing a message, for metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not finished.
    Open,
    /// Its results were published.
    Success,
    /// The reply was empty.
    EmptyResponse,
    /// Handled by an end actor.
    EndConsumed,
    Failed(Fault),
}

/// Why a message failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The metric label.
    pub reason: &'static str,
    /// The type of runtime error, if it is one (SC-92).
    pub runtime: Option<&'static str>,
    /// For logs; must not quote the message.
    pub text: String,
}

/// The decision about a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// Actions to execute, in order.
    pub actions: Vec<Action>,
    /// The result once the actions are executed.
    pub verdict: Verdict,
}

/// A message as it was delivered, and as it is processed, which differs in the trace context (SC-96).
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// Decides what must not depend on how often it is delivered, or on tracing: its size, and the id of a message
    /// without one.
    pub received: &'a [u8],
    /// What the runtime gets, and what results are made of.
    pub request: &'a [u8],
}

/// Decides how a message is processed.
#[must_use]
pub fn decide(
    rules: &Rules,
    body: Body<'_>,
    outcome: Outcome<'_>,
    state: &DeliveryState,
) -> Decision {
    match &rules.end {
        Some(_) => end_actor(body.request, outcome, state),
        None => intermediate_actor(&Case { rules, body, state }, outcome),
    }
}

fn requeue(reason: Reason) -> Decision {
    Decision {
        actions: vec![Action::Requeue(reason)],
        verdict: Verdict::Open,
    }
}

/// The message may have caused a crash, or another one that was open at that moment.
fn call_alone() -> Decision {
    Decision {
        actions: vec![Action::CallAlone],
        verdict: Verdict::Open,
    }
}

fn sent(mut actions: Vec<Action>, verdict: Verdict) -> Decision {
    actions.push(Action::Acknowledge);
    Decision { actions, verdict }
}

impl Refused {
    /// Records that the broker refused a message as too large; `None` if it cannot be reduced any further.
    #[must_use]
    pub fn and(self, kind: Kind, size: usize) -> Option<Self> {
        match kind {
            Kind::Routing | Kind::HappyEnd => Some(Self {
                result: Some(size),
                ..self
            }),
            Kind::ErrorEnd => self.keep.less().map(|keep| Self { keep, ..self }),
        }
    }
}
