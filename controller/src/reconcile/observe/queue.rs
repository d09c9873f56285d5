//! Observes the queue, and the depth to report.

use crate::broker::BrokerError;
use crate::broker::depths::ReportedDepth;
use crate::broker::health::QueueRechecks;
use crate::context::Context;
use crate::reconcile::model::observed::Contested;
use crate::reconcile::model::observed::{Observed, QueueSeen};
use crate::record::{ActorRecord, Key};

/// A verified queue is reported as failed after this many failures in a row (QUE-10).
const TOLERATED: u32 = 3;

/// Asks the broker if what is known of the queue is not enough.
pub(super) async fn look(context: &Context, observed: &Observed) -> QueueSeen {
    let Ok(desired) = &observed.desired else {
        return QueueSeen::NotAsked;
    };
    if !observed.works() || observed.actor.annotations.paused || !observed.queues_managed {
        return QueueSeen::NotAsked;
    }
    let key = observed.key();
    let verified = observed.is_verified(desired);
    if verified && context.queue_rechecks.about(key).is_none() {
        return QueueSeen::Verified;
    }
    let namespace = &observed.key().namespace;
    let client = context.brokers.client(&desired.transport, namespace);
    match client.observe(&desired.queue_of(&observed.actor)).await {
        Ok(seen) => QueueSeen::Checked(seen.standing),
        Err(error) => not_seen(&context.queue_rechecks, key, verified, error),
    }
}

/// The depth to report: none if it cannot be counted, since the previous one is then outdated (QUE-20).
pub(super) fn depth(
    context: &Context,
    actor: &ActorRecord,
    contested: Option<&Contested>,
) -> ReportedDepth {
    let installation = &context.installation;
    let transport = actor.transport.as_deref();
    let usable = transport.is_some_and(|name| installation.transports.usable(name).is_ok());
    if installation.queues_managed && usable && contested.is_none() {
        context.depths.told(&actor.metadata.key)
    } else {
        ReportedDepth::Nothing
    }
}

/// Classifies a failed queue check. If the broker was not even asked because other calls are ahead, the reconcile
/// continues with everything that does not need the broker (OPS-22).
pub(super) fn not_seen(
    rechecks: &QueueRechecks,
    key: &Key,
    verified: bool,
    error: BrokerError,
) -> QueueSeen {
    if error.comes_again().is_some() {
        return QueueSeen::Unanswered(error.retry());
    }
    if verified && error.may_pass() && rechecks.unanswered(key, &error) < TOLERATED {
        QueueSeen::Unanswered(error.retry())
    } else {
        QueueSeen::Unknown(error)
    }
}
