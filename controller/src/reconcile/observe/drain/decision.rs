//! Whether an actor that is being deleted may be torn down, if that requires an empty queue (QUE-40), and which message
//! count to report meanwhile. Pure.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus, State};
use k8s_openapi::jiff::Timestamp;

use crate::broker::Depth;
use crate::broker::depths::ReportedDepth;
use crate::clock_skew::{may_have_passed, time_left};
use crate::reconcile::model::drain::{DrainState, Messages, QueueCount, RemainingQueues};

/// Which message count to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountReport {
    /// The current count: status reports no count of this queue.
    Exact,
    /// The current count, which later reports start from. The Event at the start of the deletion is written only once,
    /// so it must not carry a stale count.
    Reset,
    /// The count that status may report now (QUE-20): small changes do not justify a write.
    AsReported,
}

impl CountReport {
    pub fn of(previous: &AsyncActorStatus, queue: &QueueStatus) -> Self {
        let is_current = previous
            .queue
            .as_ref()
            .is_none_or(|it| it.is_same_queue(queue));
        match previous.status {
            _ if !is_current => Self::Exact,
            Some(State::Terminating) => Self::AsReported,
            _ => Self::Reset,
        }
    }

    /// Whether to record the count, and if so, whether to drop earlier ones before.
    pub fn recording(self, messages: &Messages) -> Option<bool> {
        match (self, messages) {
            (Self::Exact, _) => None,
            (_, Messages::Known(depth)) if *depth != Depth::default() => Some(self == Self::Reset),
            _ => None,
        }
    }
}

impl Messages {
    /// The count to report; `report_count` returns what status reports once a count is recorded.
    pub fn reported(
        self,
        report: CountReport,
        report_count: impl FnOnce(Depth, bool) -> ReportedDepth,
    ) -> Self {
        let (Self::Known(depth), Some(reset)) = (&self, report.recording(&self)) else {
            return self;
        };
        match report_count(*depth, reset) {
            ReportedDepth::Depth(reported) if reported != Depth::default() => Self::Known(reported),
            _ => self,
        }
    }
}

/// Inputs to [`decide`].
pub struct DrainInputs<'a> {
    /// Every queue to delete with the actor.
    pub queues: &'a [QueueCount],
    /// Since when status reports that the deletion no longer waits for the queue.
    pub released_at: Option<Timestamp>,
    /// How far counts lag behind.
    pub lag: Duration,
    pub now: Timestamp,
}

/// Decides for an actor whose namespace is not being deleted.
pub fn decide(inputs: &DrainInputs<'_>) -> DrainState {
    let released_at = inputs
        .released_at
        .filter(|time| may_have_passed(*time, inputs.now));
    // An unreachable broker does not make the deletion wait again: the queue itself is still deleted only if it is
    // empty.
    let waits = |it: &RemainingQueues| !it.with_messages.is_empty() || released_at.is_none();
    if let Some(remaining) = RemainingQueues::of(inputs.queues).filter(waits) {
        return DrainState::Waiting(remaining);
    }
    let Some(since) = released_at else {
        return DrainState::Confirming(inputs.lag);
    };
    let ends = since.checked_add(inputs.lag).unwrap_or(Timestamp::MAX);
    time_left(ends, inputs.lag, inputs.now).map_or(DrainState::Empty, DrainState::Confirming)
}

#[cfg(test)]
mod tests;
