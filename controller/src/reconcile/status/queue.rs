//! The actor's queue and its retired queues in the status.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus};

use crate::broker::Serving;
use crate::fault::Requeue;
use crate::reconcile::desired::Desired;
use crate::reconcile::model::known_queues::{Hold, is_same};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState};
use crate::reconcile::plan::retired;
use crate::telemetry::events::EventReason;

/// Requeue interval for a queue that was just retired.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What follows from the reported queues.
pub(super) struct Told {
    /// When to requeue.
    pub(super) retry: Option<Requeue>,
    /// Events to record.
    pub(super) notes: Vec<(EventReason, String)>,
}

/// Writes the queues into `status`.
pub(super) fn tell(observed: &Observed, ensured: &Ensured, status: &mut AsyncActorStatus) -> Told {
    let queue = queue_status(observed, ensured);
    let retired = retired::list(observed, queue.as_ref(), &ensured.retired.gone);
    let begins = retired.listed.iter().any(|listed| {
        let before = &observed.previous.retired_queues;
        !before.iter().any(|before| is_same(before, listed))
    });
    let again = if begins {
        Some(AT_ONCE)
    } else {
        ensured.retired.again
    };
    let mut notes: Vec<(EventReason, String)> = retired
        .told
        .into_iter()
        .map(|text| (EventReason::QueueRetired, text))
        .collect();
    notes.extend(limit_inactive(observed, ensured, queue.as_ref()));
    status.queue = queue;
    status.retired_queues = retired.listed;
    Told {
        retry: again.map(Requeue::After),
        notes,
    }
}

fn serving(ensured: &Ensured) -> Option<&Serving> {
    match &ensured.queue {
        QueueState::Ready(serving) => serving.as_ref(),
        QueueState::Created(serving) => Some(serving),
        _ => None,
    }
}

fn queue_status(observed: &Observed, ensured: &Ensured) -> Option<QueueStatus> {
    let previous = observed.previous.queue.as_ref();
    let (QueueState::Ready(_) | QueueState::Created(_), Ok(desired)) =
        (&ensured.queue, &observed.desired)
    else {
        let lost = observed.queues.verified.as_ref();
        let lost = lost.is_some_and(|known| matches!(known.hold, Hold::Lost(_)));
        // Its owner may delete it, so verify it again before relying on it.
        return previous.cloned().map(|queue| QueueStatus {
            verified_generation: queue.verified_generation.filter(|_| !lost),
            ..queue
        });
    };
    let wanted = desired.queue();
    let known = previous.filter(|queue| is_same(queue, &wanted));
    let serving = serving(ensured);
    let url = serving.and_then(|serving| serving.url.clone());
    // Only a broker's response in this reconcile verifies the current configuration.
    let hash = match serving {
        Some(_) => Some(desired.queue_hash.clone()),
        None => known.and_then(|known| known.verified_hash.clone()),
    };
    Some(QueueStatus {
        dead_letters: dead_letters(observed, &wanted, serving.map(|_| &**desired)),
        url: url.or_else(|| known?.url.clone()),
        verified_generation: Some(observed.actor.generation),
        verified_hash: hash,
        ..wanted
    })
}

/// All dead letter queues that the queue ever had of its own, under any name of its transport, plus the one that `now`
/// configures (QUE-14).
fn dead_letters(observed: &Observed, wanted: &QueueStatus, now: Option<&Desired>) -> Vec<String> {
    let known = &observed.queues;
    let known = known.verified.iter().chain(&known.retired);
    let same = known.filter(|known| known.hold == Hold::Wanted || is_same(&known.queue, wanted));
    let own = now.and_then(|desired| desired.transport.own_dead_letters(&wanted.name));
    let before = same.flat_map(|known| known.queue.dead_letters.iter().cloned());
    let mut all: Vec<String> = before.chain(own).collect();
    all.sort();
    all.dedup();
    all
}

/// Reported once per queue and configuration, because it does not change (RMQ-5).
fn limit_inactive(
    observed: &Observed,
    ensured: &Ensured,
    queue: Option<&QueueStatus>,
) -> Option<(EventReason, String)> {
    let queue = queue.filter(|_| serving(ensured).is_some_and(|it| it.delivery_limit_inactive))?;
    let same = |before: &QueueStatus| {
        is_same(before, queue) && before.verified_hash == queue.verified_hash
    };
    if observed.previous.queue.as_ref().is_some_and(same) {
        return None;
    }
    let text = format!(
        "queue {} is a classic queue, which counts no deliveries: a message that fails again and again never \
         reaches the dead letter queue; delete the queue when it is empty, and it is made as a quorum queue",
        queue.name
    );
    Some((EventReason::DeliveryLimitInactive, text))
}

#[cfg(test)]
mod tests;
