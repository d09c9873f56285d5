//! Queues that an actor no longer uses because its transport or the template of its queue's name changed. They are
//! deleted once they are empty, at the latest with the actor (QUE-13).

use std::sync::Arc;

use asya_shared::api::QueueStatus;

use crate::broker::{DeleteIfEmptyOutcome, QueueIdMatch};
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::target_pods::actor_hash;
use crate::record::PodRecord;

/// The retired queues to check at their brokers.
#[derive(Debug, Default)]
pub struct RetiredCheck {
    /// Queues to delete if they are empty.
    pub queues: Vec<QueueStatus>,
    /// Queues that an earlier process may have created: deleted if they are empty and not another actor's.
    pub maybe_created: Vec<QueueStatus>,
    /// Queues that no status has named as verified, and so may never have been created. While pods may consume from
    /// them, they are only looked up.
    pub never_verified: Vec<QueueStatus>,
    /// The actor's queue: another transport may reach it (QUE-36).
    pub current: Option<QueueStatus>,
    /// The actor's pods, which do not consume from the queues to delete.
    pub known_pods: Vec<Arc<PodRecord>>,
}

pub fn plan_check(observed: &Observed) -> RetiredCheck {
    let Some(desired) = desired_if_deletable(observed) else {
        return RetiredCheck::default();
    };
    let retired = observed.queues.retired.iter().filter(|known| {
        known.permission == DeletePermission::Allowed && !known.queue.is_same_queue(&desired)
    });
    let mut queues: Vec<QueueStatus> = retired.map(|known| known.queue.clone()).collect();
    let maybe_created = observed.queues.maybe_created.clone();
    if all_pods_current(observed) || all_sidecars_current(observed) {
        let is_needed = !queues.is_empty() || !maybe_created.is_empty();
        RetiredCheck {
            queues,
            maybe_created,
            never_verified: Vec::new(),
            current: is_needed.then_some(desired),
            known_pods: observed
                .known_pods
                .iter()
                .filter(|_| is_needed)
                .cloned()
                .collect(),
        }
    } else {
        queues.retain(|queue| queue.verified_hash.is_none() && queue.url.is_none());
        queues.extend(maybe_created);
        RetiredCheck {
            never_verified: queues,
            ..RetiredCheck::default()
        }
    }
}

/// The actor's current queue, if its earlier ones may be deleted.
fn desired_if_deletable(observed: &Observed) -> Option<QueueStatus> {
    let desired = observed.desired.as_ref().ok()?;
    let keeps = !observed.queues_managed
        || observed.keeps_queues()
        || observed.actor.annotations.skip_queue_deletion;
    (!keeps).then(|| desired.queue())
}

fn all_pods_current(observed: &Observed) -> bool {
    let Some(standalone) = observed.standalone() else {
        return false;
    };
    let current = Some(&*standalone.workload.template_hash);
    let mut pods = observed.consuming_pods();
    pods.all(|pod| pod.finished || pod.template_hash.as_deref() == current)
}

/// Whether every sidecar consumes from the current queue, which its actor hash identifies (ROLL-8). A terminating pod
/// may still consume, as may one outside the target: an earlier actor of this name left it, or somebody changed its
/// labels.
fn all_sidecars_current(observed: &Observed) -> bool {
    let desired = observed.desired_binding();
    let Some(desired_hash) = desired.and_then(|bound| bound.injected_hash.as_deref()) else {
        return false;
    };
    let resolved = observed.resolved_binding();
    let Some(pods) = resolved.and_then(|it| it.injection.pods.as_ref()) else {
        return false;
    };
    let injected = observed.known_pods.iter().filter(|pod| {
        let injection = pod.injection.as_ref();
        injection.is_some_and(|it| it.intact)
    });
    let outside = observed.consuming_pods().chain(injected);
    let outside = outside.filter(|pod| !pod.finished);
    pods.labelled.iter().chain(outside).all(|pod| {
        let pod_hash = pod.injection.as_ref().and_then(|it| it.hash.as_deref());
        actor_hash(pod_hash) == actor_hash(Some(desired_hash))
    })
}

/// The result of an attempt to delete a retired queue.
#[derive(Debug)]
pub struct RetiredRemoval {
    pub outcome: DeleteIfEmptyOutcome,
    /// The broker marked it as the actor's.
    pub tagged: bool,
}

/// The decision about a retired queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetiredStep {
    /// It is deleted, not the actor's, or the actor's current one.
    Forget,
    /// It turned out to be the actor's: keep it as such.
    Confirm,
    Keep,
}

/// Decides for a retired queue that may be the actor's current one, reached through another transport; `None` if it is
/// a different queue, which can be removed. If nothing tells them apart, it must not be deleted. It is forgotten only
/// once it is empty: if it is a different queue after all, status names it until its messages are handled (QUE-36).
pub fn step_without_removal(id_match: QueueIdMatch, holds_messages: bool) -> Option<RetiredStep> {
    match id_match {
        QueueIdMatch::Different => None,
        QueueIdMatch::Possible if holds_messages => Some(RetiredStep::Keep),
        QueueIdMatch::Same | QueueIdMatch::Possible => Some(RetiredStep::Forget),
    }
}

/// Decides after an attempt to delete a retired queue, which is `confirmed` as the actor's or may be another's.
pub fn after_retired_removal(confirmed: bool, removal: &RetiredRemoval) -> RetiredStep {
    match removal.outcome {
        DeleteIfEmptyOutcome::Deleted | DeleteIfEmptyOutcome::NotOwned(_) => RetiredStep::Forget,
        _ if confirmed => RetiredStep::Keep,
        _ if removal.tagged => RetiredStep::Confirm,
        DeleteIfEmptyOutcome::InUse => RetiredStep::Forget,
        DeleteIfEmptyOutcome::Recheck(_) => RetiredStep::Keep,
    }
}

/// The next steps after a check of retired queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterCheck {
    /// Verify the actor's queue again: two addresses may point to the same broker, so the deleted queue may have been
    /// the desired one.
    pub rechecks_queue: bool,
    pub schedule: NextCheck,
}

/// When to check the remaining queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCheck {
    /// Never: none remains.
    None,
    Now,
    Scheduled,
}

/// Decides after a check of `checked` queues, of which `deleted` no longer exist.
pub fn after_check(checked: usize, deleted: usize) -> AfterCheck {
    AfterCheck {
        rechecks_queue: deleted > 0,
        schedule: match deleted {
            _ if deleted == checked => NextCheck::None,
            0 => NextCheck::Scheduled,
            _ => NextCheck::Now,
        },
    }
}

#[cfg(test)]
pub(in crate::reconcile) mod tests;
