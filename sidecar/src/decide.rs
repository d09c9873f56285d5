//! Decides how to process a message: a pure function of the message, the outcome so far, and the settings (SC-71).

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

/// What has happened to the message so far.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// Delivered, but not yet sent to the runtime.
    Received,
    /// The runtime's reply.
    Replied(&'a [u8]),
    /// The announced reply size exceeds the limit; in bytes.
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

/// What other calls have to do with a call that ended because the runtime terminated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherCalls {
    /// None.
    #[default]
    None,
    /// Some were open, so any of their messages may have crashed the runtime (SC-49).
    Open,
    /// One has timed out, which makes the runtime exit (SC-52).
    TimedOut,
}

/// The state of a delivery, apart from its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryState {
    /// How often the message was delivered before.
    pub deliveries: Deliveries,
    /// The size of the whole message in bytes, if it is too large, so that the body holds only its beginning.
    pub size: Option<usize>,
    /// How often this process has retried an end actor's handler for this delivery.
    pub attempt: usize,
    /// The state of other calls when the last call for this message ended.
    pub others: OtherCalls,
    /// Whether the runtime is called for this message only while no other call is open (SC-49).
    pub alone: bool,
    /// Whether this process is shutting down.
    pub stopping: bool,
    /// The runtime of an end actor has removed its ready file during the last call, so it may have given the message
    /// back (RUN-20).
    pub runtime_ends: bool,
    /// What the broker has refused as too large after an earlier decision about this message.
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
    Call,
    /// Call the runtime again while no other call is open.
    CallAlone,
    /// Call the runtime again after a delay.
    CallAgain(Duration),
    Send(OutgoingMessage),
    /// Send the final report to the gateway (SC-88).
    ReportFinal,
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
    RuntimeCrashed,
    /// The runtime terminated while processing it because a call for another message timed out (SC-52).
    OtherTimedOut,
    NotStored,
    NotReported,
    Shutdown,
    /// The process is shutting down, possibly because the call for this message timed out (SC-52).
    TimedOut,
    /// It was prefetched and waited too long for a slot.
    Waited,
    /// Processing it panicked.
    Panicked,
}

impl Reason {
    /// Whether processing the message failed, so that it counts towards the queue's delivery limit (SC-34).
    #[must_use]
    pub fn is_failure(self) -> bool {
        match self {
            Self::RuntimeCrashed
            | Self::NotStored
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
    pub id: String,
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
    /// The value of the metric label `error_type`, if the runtime failed (SC-92).
    pub runtime: Option<&'static str>,
    /// For logs; must not quote the message.
    pub text: String,
}

/// What to do about a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// Actions, in order.
    pub actions: Vec<Action>,
    /// The result once all actions have been executed.
    pub verdict: Verdict,
}

/// A message as it was delivered, and as it is processed, which differs only in the trace context (SC-96).
#[derive(Clone, Copy, Debug)]
pub struct Body<'a> {
    /// Determines what must not change with redelivery or tracing: the size, and the id made up for a message without
    /// one.
    pub received: &'a [u8],
    /// Sent to the runtime, and the source of results.
    pub request: &'a [u8],
}

/// Decides how to process a message.
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

/// This message or another one whose call was open may have crashed the runtime.
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
    /// Records that the broker refused a message as too large; `None` if it cannot be reduced further.
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
