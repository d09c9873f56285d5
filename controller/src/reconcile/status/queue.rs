//! The actor's queue, its messages and its retired queues in the status.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus};

use super::retired;
use crate::broker::ReadyQueue;
use crate::broker::depths::ReportedDepth;
use crate::fault::{Reason, Requeue};
use crate::reconcile::desired::Desired;
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{CommonOutcome, QueueState};
use crate::telemetry::events::{EventReason, NewEvent};

/// Requeue interval for a queue that was just retired.
const NEWLY_RETIRED_RECHECK: Duration = Duration::from_secs(1);

/// The queues, as reported.
pub(super) struct QueueReport {
    pub(super) fields: QueueFields,
    pub(super) requeue: Option<Requeue>,
    pub(super) events: Vec<NewEvent>,
}

/// The fields of the status about queues.
pub(super) struct QueueFields {
    queue: Option<QueueStatus>,
    marked_for_other: Option<bool>,
    queued_messages: Option<i64>,
    processing_messages: Option<i64>,
    retired: Vec<QueueStatus>,
}

impl QueueFields {
    pub(super) fn write_into(self, status: &mut AsyncActorStatus) {
        status.queue = self.queue;
        status.queue_marked_for_other = self.marked_for_other;
        status.queued_messages = self.queued_messages;
        status.processing_messages = self.processing_messages;
        status.retired_queues = self.retired;
    }
}

/// Reports the actor's queue, its messages and its retired queues.
pub(super) fn queue_report(observed: &Observed, outcome: &CommonOutcome) -> QueueReport {
    let queue = queue_status(observed, outcome);
    let limit_inactive = limit_inactive(observed, outcome, queue.as_ref());
    let kept_settings = kept_settings(observed, outcome, queue.as_ref());
    let (queued_messages, processing_messages) = messages(observed, outcome);
    let retired = retired::list(observed, queue.as_ref(), &outcome.retired);
    let newly_retired = retired.queues.iter().any(|listed| {
        let retired = &observed.previous.retired_queues;
        !retired.iter().any(|it| it.is_same_queue(listed))
    });
    let recheck = if newly_retired {
        Some(NEWLY_RETIRED_RECHECK)
    } else {
        outcome.retired.recheck_after
    };
    let mut events: Vec<NewEvent> = retired
        .messages
        .into_iter()
        .map(|text| NewEvent::new(EventReason::QueueRetired, text))
        .collect();
    events.extend(limit_inactive.into_iter().chain(kept_settings));
    QueueReport {
        fields: QueueFields {
            queue,
            marked_for_other: marked_for_other(observed, outcome),
            queued_messages,
            processing_messages,
            retired: retired.queues,
        },
        requeue: recheck.map(Requeue::After),
        events,
    }
}

/// Whether the broker marks the queue as another's (QUE-32, QUE-35). The broker is not asked about a name that another
/// actor holds.
fn marked_for_other(observed: &Observed, outcome: &CommonOutcome) -> Option<bool> {
    if observed.desired.is_err() {
        return None;
    }
    let previous = observed.previous.queue_marked_for_other;
    match &outcome.queue {
        QueueState::Fault(fault) => match fault.reason {
            Reason::QueueConflict => Some(true),
            // The broker did not say whose the queue is.
            Reason::BrokerUnreachable
            | Reason::BrokerThrottled
            | Reason::BrokerAuthFailed
            | Reason::CredentialsMissing => previous,
            _ => None,
        },
        QueueState::NotChecked | QueueState::Deferred(_) => previous,
        QueueState::Ready(_) | QueueState::Created(_) | QueueState::Unmanaged => None,
    }
}

/// Approximate message counts (QUE-20).
fn messages(observed: &Observed, outcome: &CommonOutcome) -> (Option<i64>, Option<i64>) {
    let previous = &observed.previous;
    let to_count = |messages| i64::try_from(messages).ok();
    match (observed.depth, &outcome.queue) {
        // A new queue is empty.
        (_, QueueState::Created(_)) => (Some(0), Some(0)),
        (ReportedDepth::Depth(depth), _) => (to_count(depth.queued), to_count(depth.processing)),
        (ReportedDepth::Unknown, _) => (None, None),
        (ReportedDepth::Unchanged, _) => (previous.queued_messages, previous.processing_messages),
    }
}

fn ready_queue(outcome: &CommonOutcome) -> Option<&ReadyQueue> {
    match &outcome.queue {
        QueueState::Ready(ready) => ready.as_ref(),
        QueueState::Created(ready) => Some(ready),
        _ => None,
    }
}

fn queue_status(observed: &Observed, outcome: &CommonOutcome) -> Option<QueueStatus> {
    let previous = observed.previous.queue.as_ref();
    let (QueueState::Ready(_) | QueueState::Created(_), Ok(desired)) =
        (&outcome.queue, &observed.desired)
    else {
        let verified = observed.queues.verified.as_ref();
        let lost =
            verified.is_some_and(|known| matches!(known.permission, DeletePermission::HeldBy(_)));
        // Its owner may delete it, so verify it again before relying on it. After a fault, a new process would
        // otherwise report the queue as ready without asking.
        let needs_verification = lost || matches!(outcome.queue, QueueState::Fault(_));
        return previous.cloned().map(|queue| QueueStatus {
            verified_generation: queue.verified_generation.filter(|_| !needs_verification),
            ..queue
        });
    };
    let desired_queue = desired.queue();
    let known = previous.filter(|queue| queue.is_same_queue(&desired_queue));
    let ready = ready_queue(outcome);
    let url = ready.and_then(|ready| ready.url.clone());
    // Only an answer of the broker in this reconcile verifies the current configuration.
    let hash = match ready {
        Some(_) => Some(desired.queue_hash.clone()),
        None => known.and_then(|known| known.verified_hash.clone()),
    };
    Some(QueueStatus {
        dead_letters: dead_letters(observed, &desired_queue, ready.map(|_| &**desired)),
        url: url.or_else(|| known?.url.clone()),
        verified_generation: Some(observed.actor.generation),
        verified_hash: hash,
        ..desired_queue
    })
}

/// All own dead letter queues that the queue ever had, under any name of its transport, plus the one of the `current`
/// configuration (QUE-14).
fn dead_letters(
    observed: &Observed,
    queue: &QueueStatus,
    current: Option<&Desired>,
) -> Vec<String> {
    let known = &observed.queues;
    let known = known.verified.iter().chain(&known.retired);
    let same = known.filter(|known| {
        known.permission == DeletePermission::SameAsDesired || known.queue.is_same_queue(queue)
    });
    let own = current.and_then(|desired| desired.transport.own_dead_letters(&queue.name));
    let known = same.flat_map(|known| known.queue.dead_letters.iter().cloned());
    let mut all: Vec<String> = known.chain(own).collect();
    all.sort();
    all.dedup();
    all
}

/// Reported once per queue and configuration, because it does not change (RMQ-5).
fn limit_inactive(
    observed: &Observed,
    outcome: &CommonOutcome,
    queue: Option<&QueueStatus>,
) -> Option<NewEvent> {
    let queue =
        queue.filter(|_| ready_queue(outcome).is_some_and(|it| it.delivery_limit_inactive))?;
    if is_known_as(observed, queue) {
        return None;
    }
    let text = format!(
        "queue {} is a classic queue, which does not count deliveries: a message that keeps failing never reaches \
         the dead letter queue; delete the queue once it is empty, and the operator recreates it as a quorum queue",
        queue.name
    );
    Some(NewEvent::new(EventReason::DeliveryLimitInactive, text))
}

/// Reported once per queue and configuration, because it does not change (RMQ-5).
fn kept_settings(
    observed: &Observed,
    outcome: &CommonOutcome,
    queue: Option<&QueueStatus>,
) -> Option<NewEvent> {
    let kept = &ready_queue(outcome)?.kept_settings;
    if kept.is_empty() || is_known_as(observed, queue?) {
        return None;
    }
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    let text = format!(
        "{}: RabbitMQ cannot change a queue that exists, so it stays as it is, with its messages. A policy at the broker \
         (delivery-limit, message-ttl) can lower such a value. To raise or remove it, delete that queue at the broker \
         once it is empty and nothing sends to it; the operator creates it again",
        kept.join("; ")
    );
    Some(NewEvent::new(EventReason::QueueSettingsKept, text))
}

/// Whether the previous status names this queue as verified for the same configuration.
fn is_known_as(observed: &Observed, queue: &QueueStatus) -> bool {
    let previous = observed.previous.queue.as_ref();
    previous.is_some_and(|previous| {
        previous.is_same_queue(queue) && previous.verified_hash == queue.verified_hash
    })
}

#[cfg(test)]
mod tests;
