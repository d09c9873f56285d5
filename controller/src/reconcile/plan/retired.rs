//! Queues that an actor has left because its transport or the template of its queue's name changed (QUE-13): they are
//! deleted once they are empty, at the latest with the actor.

use asya_shared::api::QueueStatus;

use crate::reconcile::model::bound_pods::actor_part;
use crate::reconcile::model::known_queues::{
    Hold, KnownQueue, has_same_address, is_elsewhere, is_same,
};
use crate::reconcile::model::observed::Observed;

/// The retired queues of an actor after a reconcile.
#[derive(Debug, Default, PartialEq)]
pub struct Retired {
    /// Queues to delete once they are empty.
    pub listed: Vec<QueueStatus>,
    /// Messages for users.
    pub told: Vec<String>,
}

/// The queues to query at their brokers now: those that are ours to delete and that no pod of ours may still consume
/// from. Pods of an earlier template may.
pub fn looks(observed: &Observed) -> Vec<QueueStatus> {
    let Ok(desired) = &observed.desired else {
        return Vec::new();
    };
    if !may_delete(observed) {
        return Vec::new();
    }
    let wanted = desired.queue();
    let retired = observed.queues.retired.iter();
    retired
        .filter(|known| known.hold == Hold::Ours && !is_same(&known.queue, &wanted))
        .map(|known| known.queue.clone())
        .collect()
}

fn may_delete(observed: &Observed) -> bool {
    observed.queues_managed
        && !observed.deletion.retains_queue
        && !observed.actor.annotations.skip_queue_deletion
        && (no_old_pod(observed) || no_old_sidecar(observed))
}

fn no_old_pod(observed: &Observed) -> bool {
    let Some(own) = observed.standalone() else {
        return false;
    };
    let current = Some(&*own.workload.template_hash);
    let mut pods = observed.pods.iter();
    pods.all(|pod| pod.finished || pod.template_hash.as_deref() == current)
}

/// The actor part of a sidecar's hash identifies the queue that it consumes from (ROLL-8). A terminating pod may still
/// consume.
fn no_old_sidecar(observed: &Observed) -> bool {
    let (Some(bound), Some(seen)) = (observed.bound(), &observed.binding) else {
        return false;
    };
    let Some(pods) = &seen.pods else {
        return false;
    };
    let (Some(wanted), Some(Ok(_))) = (bound.injected_hash.as_deref(), &seen.target) else {
        return false;
    };
    pods.marked.iter().all(|pod| {
        let said = pod.injection.as_ref().and_then(|it| it.hash.as_deref());
        actor_part(said) == actor_part(Some(wanted))
    })
}

/// Retired queues for status, if `queue` is the actor's queue and `gone` were deleted.
pub fn list(observed: &Observed, queue: Option<&QueueStatus>, gone: &[QueueStatus]) -> Retired {
    let is_current = |known: &QueueStatus| {
        queue.is_some_and(|queue| is_same(queue, known) || has_same_address(queue, known))
    };
    // The same name in two accounts: the old account may no longer be configured, but both queues were used.
    let is_wanted = |known: &KnownQueue| {
        let moved = queue.is_some_and(|queue| is_elsewhere(queue, &known.queue));
        known.hold == Hold::Wanted && !moved
    };
    let mut after = Retired::default();
    for known in &observed.queues.retired {
        let is_gone = gone.iter().any(|gone| is_same(gone, &known.queue));
        if is_gone || is_current(&known.queue) || is_wanted(known) {
            continue;
        }
        match stays_because(observed, known) {
            None => after.listed.push(known.queue.clone()),
            Some(reason) => after.told.push(told(&known.queue, &reason)),
        }
    }
    let left = observed.queues.verified.as_ref();
    let left = left.filter(|left| !is_wanted(left) && !is_current(&left.queue));
    if let Some(left) = left.filter(|_| queue.is_some()) {
        let reason = stays_because(observed, left);
        let fate = reason.as_deref().unwrap_or(GOES);
        after.told.push(told(&left.queue, fate));
        if reason.is_none() {
            after.listed.push(QueueStatus {
                verified_generation: None,
                ..left.queue.clone()
            });
        }
    }
    after
}

const GOES: &str = "it is deleted when it is empty, at the latest with this actor";

fn told(queue: &QueueStatus, fate: &str) -> String {
    let QueueStatus {
        name, transport, ..
    } = queue;
    format!("queue {name} on transport {transport} is no longer this actor's: {fate}")
}

/// Why a queue is not ours to delete; `None`: it is deleted as soon as possible.
fn stays_because(observed: &Observed, known: &KnownQueue) -> Option<String> {
    match &known.hold {
        Hold::Lost(owner) => Some(format!("it belongs to {owner}")),
        Hold::Theirs => Some("it stays, because the transport has autoCreate: false".to_owned()),
        _ if observed.deletion.retains_queue => {
            Some("it stays, because queue.deletionPolicy is Retain".to_owned())
        }
        Hold::Ours | Hold::Wanted | Hold::OutOfReach(_) => None,
    }
}

/// What follows from a check of retired queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterCheck {
    /// Verify the actor's queue: two addresses may lead to the same broker, so a queue that is gone may have been the
    /// desired one, which is then recreated.
    pub rechecks_queue: bool,
    pub schedule: NextCheck,
}

/// When to check the remaining queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCheck {
    /// None remains.
    None,
    Now,
    Scheduled,
}

/// Decides after a check of `asked` queues, of which `gone` no longer exist.
pub fn after_check(asked: usize, gone: usize) -> AfterCheck {
    AfterCheck {
        rechecks_queue: gone > 0,
        schedule: match gone {
            _ if gone == asked => NextCheck::None,
            0 => NextCheck::Scheduled,
            _ => NextCheck::Now,
        },
    }
}

#[cfg(test)]
mod tests;
