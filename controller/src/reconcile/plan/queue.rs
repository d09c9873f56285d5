//! Plans the queue.

use std::sync::Arc;

use crate::broker::rechecks::RecheckSequence;
use crate::broker::{BrokerError, CallFailure, QueueCheck, ReadyQueue};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::desired::Desired;
use crate::reconcile::model::observed::{Observed, ObservedQueue, is_reconcile_once_done};
use crate::reconcile::model::outcome::QueueState;
use crate::reconcile::plan::steps::QueueStep;
use crate::telemetry::events::{EventReason, NewEvent};

/// The step for the desired queue, which is executed before the workload is touched.
#[derive(Debug)]
pub struct QueuePlan {
    pub desired: Arc<Desired>,
    pub step: QueueStep,
    /// The last recheck request before the queue was observed.
    pub recheck_sequence: RecheckSequence,
    /// The queue is verified for the current spec.
    pub was_verified: bool,
    /// Status names the queue, so creating it now means that it was lost.
    pub was_recorded: bool,
}

impl QueuePlan {
    /// Whether the queue is usable if this step fails: it was verified, and only its attributes have changed since.
    pub fn is_usable_before(&self) -> bool {
        self.was_verified && self.step == QueueStep::Update
    }

    /// Whether the queue exists after this step although status may not name it: this step creates it, or an earlier
    /// reconcile did and its status was lost.
    pub fn exists_unrecorded(&self) -> bool {
        match self.step {
            QueueStep::Create => true,
            QueueStep::Keep(_) | QueueStep::Update => !self.was_verified,
            QueueStep::Await(_)
            | QueueStep::Unmanaged
            | QueueStep::Skip
            | QueueStep::Blocked(_) => false,
        }
    }
}

/// Plans the desired queue; `None` if the spec cannot be acted on.
pub fn plan_queue(observed: &Observed) -> Option<QueuePlan> {
    let desired = observed.desired.as_ref().ok()?;
    Some(QueuePlan {
        desired: Arc::clone(desired),
        step: plan_step(observed, desired),
        recheck_sequence: observed.recheck_sequence,
        was_verified: observed.is_verified(desired),
        was_recorded: observed.records_queue_of(desired),
    })
}

fn plan_step(observed: &Observed, desired: &Desired) -> QueueStep {
    if is_reconcile_once_done(&observed.actor, &observed.previous)
        && !observed.pods_use_queue_of(desired)
    {
        return QueueStep::Skip;
    }
    let queue = &desired.names.queue;
    let creates = desired.transport.queues().auto_create;
    match &observed.queue {
        ObservedQueue::Unmanaged => QueueStep::Unmanaged,
        // Only of actors that are paused or torn down, whose plans have no step for the queue.
        ObservedQueue::NotQueried => QueueStep::Skip,
        ObservedQueue::Deferred(requeue) => QueueStep::Await(*requeue),
        ObservedQueue::Unknown(error) => QueueStep::Blocked(error.fault()),
        ObservedQueue::Checked(QueueCheck::NotFound) if creates => QueueStep::Create,
        ObservedQueue::Checked(QueueCheck::NotFound) => QueueStep::Blocked(Fault {
            reason: Reason::QueueMissing,
            message: format!(
                "queue {queue} does not exist and autoCreate is false; create it at the broker"
            ),
            requeue: Requeue::SlowBackoff,
        }),
        ObservedQueue::Checked(QueueCheck::Drifted | QueueCheck::NotTaggedYet) if creates => {
            QueueStep::Update
        }
        ObservedQueue::Checked(QueueCheck::Ready(ready)) => QueueStep::Keep(Some(ready.clone())),
        ObservedQueue::Verified
        | ObservedQueue::Checked(QueueCheck::Drifted | QueueCheck::NotTaggedYet) => {
            QueueStep::Keep(None)
        }
        ObservedQueue::Checked(QueueCheck::Mismatch {
            desired: expected,
            found,
        }) => QueueStep::Blocked(Fault {
            reason: Reason::QueueMismatch,
            message: format!(
                "queue {queue} has {found}, expected {expected}; {}",
                desired.transport.broker().mismatch_remedy()
            ),
            requeue: Requeue::SlowBackoff,
        }),
    }
}

/// The state of a queue that is as desired; `created` in this reconcile. A queue in another location than configured is
/// unusable, but still deleted with the actor.
pub fn ready_state(desired: &Desired, ready: Option<ReadyQueue>, created: bool) -> QueueState {
    let url = ready.as_ref().and_then(|it| it.url.as_deref());
    let broker = desired.transport.broker();
    let mismatch = url.and_then(|url| broker.location_mismatch(&desired.names.queue, url));
    match (mismatch, ready) {
        (Some(message), _) => QueueState::Fault(Fault {
            reason: Reason::QueueConfigInvalid,
            message,
            requeue: Requeue::SlowBackoff,
        }),
        (None, Some(ready)) if created => QueueState::Created(ready),
        (None, ready) => QueueState::Ready(ready),
    }
}

/// The state of a queue whose creation or update failed.
pub fn failed_state(failure: CallFailure, error: &BrokerError) -> QueueState {
    if failure.is_reported() {
        QueueState::Fault(error.fault())
    } else {
        QueueState::Deferred(error.requeue())
    }
}

/// The Event for a created queue; if it `was_recorded` before, it had been lost.
pub fn creation_event(desired: &Desired, was_recorded: bool) -> NewEvent {
    let (reason, verb) = if was_recorded {
        (EventReason::QueueRecreated, "recreated")
    } else {
        (EventReason::QueueCreated, "created")
    };
    let queue = &desired.names.queue;
    let transport = &desired.transport.name;
    let text = format!("{verb} queue {queue} on transport {transport}");
    NewEvent::new(reason, text)
}
