//! Observes the queue, and the depth to report.

use crate::broker::depths::ReportedDepth;
use crate::broker::{BrokerError, Depth};
use crate::context::Context;
use crate::reconcile::model::observed::Contested;
use crate::reconcile::model::observed::{Observed, QueueSeen};
use crate::record::ActorRecord;

/// A verified queue is reported as failed after this many failures in a row (QUE-10).
const TOLERATED: u32 = 3;

/// Asks the broker if what is known of the queue is not enough. Returns also the error with which a verified queue was
/// not observed, to be counted.
pub(super) async fn look(
    context: &Context,
    observed: &Observed,
) -> (QueueSeen, Option<BrokerError>) {
    let Ok(desired) = &observed.desired else {
        return (QueueSeen::NotAsked, None);
    };
    if !observed.works() || observed.actor.annotations.paused || !observed.queues_managed {
        return (QueueSeen::NotAsked, None);
    }
    let key = observed.key();
    let verified = observed.is_verified(desired);
    if verified && context.queue_rechecks.about(key).is_none() {
        return (QueueSeen::Verified, None);
    }
    let client = context.brokers.client(&desired.transport, &key.namespace);
    match client.observe(&desired.queue_of(&observed.actor)).await {
        Ok(seen) => (QueueSeen::Checked(seen.standing), None),
        Err(error) => not_seen(context.queue_rechecks.failures(key), verified, error),
    }
}

/// The depth to report, also from what this reconcile has `counted`: none if it cannot be counted, since the previous one is then outdated (QUE-20).
pub(super) fn depth(
    context: &Context,
    actor: &ActorRecord,
    contested: Option<&Contested>,
    counted: Option<&(Depth, bool)>,
) -> ReportedDepth {
    let installation = &context.installation;
    let transport = actor.transport.as_deref();
    let usable = transport.is_some_and(|name| installation.transports.usable(name).is_ok());
    if installation.queues_managed && usable && contested.is_none() {
        let (depths, key) = (&context.depths, &actor.metadata.key);
        counted.map_or_else(
            || depths.told(key),
            |(depth, anew)| depths.told_after(key, *depth, *anew),
        )
    } else {
        ReportedDepth::Nothing
    }
}

/// Classifies a failed queue check after so many `failures` in a row. If the broker was not even asked because other
/// calls are ahead, the reconcile continues with everything that does not need the broker (OPS-22).
pub(super) fn not_seen(
    failures: u32,
    verified: bool,
    error: BrokerError,
) -> (QueueSeen, Option<BrokerError>) {
    if error.comes_again().is_some() {
        return (QueueSeen::Unanswered(error.retry()), None);
    }
    if !verified || !error.may_pass() {
        return (QueueSeen::Unknown(error), None);
    }
    let seen = if failures + 1 < TOLERATED {
        QueueSeen::Unanswered(error.retry())
    } else {
        QueueSeen::Unknown(error.clone())
    };
    (seen, Some(error))
}
