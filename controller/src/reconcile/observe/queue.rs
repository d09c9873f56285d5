//! Observes the queue, and the depth to report.

use super::Intent;
use crate::broker::depths::ReportedDepth;
use crate::broker::{BrokerError, CallFailure};
use crate::context::Context;
use crate::reconcile::model::observed::{
    CountedDepth, ObservedQueue, QueueNameTaken, is_queue_verified, receives_messages,
};
use crate::record::ActorRecord;

pub(super) struct QueueResult {
    pub(super) queue: ObservedQueue,
    /// The error to count if a verified queue could not be observed.
    pub(super) failure: Option<BrokerError>,
}

impl From<ObservedQueue> for QueueResult {
    fn from(queue: ObservedQueue) -> Self {
        Self {
            queue,
            failure: None,
        }
    }
}

/// Queries the broker unless the queue is verified and no recheck was requested.
pub(super) async fn observe(context: &Context, intent: &Intent) -> QueueResult {
    if !context.installation.queues_managed {
        return ObservedQueue::Unmanaged.into();
    }
    let Ok(desired) = &intent.desired else {
        return ObservedQueue::NotQueried.into();
    };
    let actor = &intent.actor;
    if !receives_messages(actor, intent.drain.as_ref()) || actor.annotations.paused {
        return ObservedQueue::NotQueried.into();
    }
    let key = intent.key();
    let verified = is_queue_verified(actor, &intent.previous, desired);
    if verified && context.queue_rechecks.reason(key).is_none() {
        return ObservedQueue::Verified.into();
    }
    let client = context.brokers.client(&desired.transport, &key.namespace);
    match client.observe(&desired.queue_of(actor)).await {
        Ok(observation) => ObservedQueue::Checked(observation.check).into(),
        Err(error) => failed_check(context.queue_rechecks.failures(key), verified, error),
    }
}

/// The depth to report, including what this reconcile has `counted`; unknown if messages cannot be counted, because the
/// previous depth is then outdated (QUE-20).
pub(super) fn reported_depth(
    context: &Context,
    actor: &ActorRecord,
    name_taken: Option<&QueueNameTaken>,
    counted: Option<&CountedDepth>,
) -> ReportedDepth {
    let installation = &context.installation;
    let transport = actor.transport.as_deref();
    let usable = transport.is_some_and(|name| installation.transports.usable(name).is_ok());
    if installation.queues_managed && usable && name_taken.is_none() {
        let depths = &context.depths;
        let key = &actor.metadata.key;
        counted.map_or_else(
            || depths.reported(key),
            |counted| depths.reported_after(key, counted.depth, counted.resets),
        )
    } else {
        ReportedDepth::Unknown
    }
}

/// The result of a failed queue check after this many `failures` in a row. If the broker was not even queried because
/// other calls are ahead, the reconcile continues with everything that does not need the broker (OPS-22).
pub(super) fn failed_check(failures: u32, verified: bool, error: BrokerError) -> QueueResult {
    let failure = CallFailure::classify(failures, verified, &error);
    QueueResult {
        failure: failure.is_counted().then(|| error.clone()),
        queue: if failure.is_reported() {
            ObservedQueue::Unknown(error)
        } else {
            ObservedQueue::Deferred(error.requeue())
        },
    }
}
