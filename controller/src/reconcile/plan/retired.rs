//! Queues that an actor no longer uses because its transport or the template of its queue's name changed. They are
//! deleted once they are empty, at the latest with the actor (QUE-13).

use std::sync::Arc;

use asya_shared::api::QueueStatus;

use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::target_pods::actor_hash;
use crate::record::PodRecord;

/// What to ask the brokers about retired queues.
#[derive(Debug, Default)]
pub struct RetiredCheck {
    /// Queues to delete if they are empty.
    pub queues: Vec<QueueStatus>,
    /// Queues that no status has named as verified, and so may never have been created. While pods may consume from
    /// them, they are only looked up.
    pub never_verified: Vec<QueueStatus>,
    /// The actor's pods, which do not consume from the queues to delete.
    pub known_pods: Vec<Arc<PodRecord>>,
}

/// Plans the check of the retired queues.
pub fn plan_check(observed: &Observed) -> RetiredCheck {
    let mut queues = deletable_queues(observed);
    if all_pods_current(observed) || all_sidecars_current(observed) {
        let known_pods = if queues.is_empty() {
            Vec::new()
        } else {
            observed.known_pods.clone()
        };
        RetiredCheck {
            queues,
            known_pods,
            ..RetiredCheck::default()
        }
    } else {
        queues.retain(|queue| queue.verified_hash.is_none() && queue.url.is_none());
        RetiredCheck {
            never_verified: queues,
            ..RetiredCheck::default()
        }
    }
}

/// The retired queues that we may delete.
fn deletable_queues(observed: &Observed) -> Vec<QueueStatus> {
    let Ok(desired) = &observed.desired else {
        return Vec::new();
    };
    if !observed.queues_managed
        || observed.deletion.retains_queue
        || observed.actor.annotations.skip_queue_deletion
    {
        return Vec::new();
    }
    let desired = desired.queue();
    let retired = observed.queues.retired.iter();
    retired
        .filter(|known| {
            known.permission == DeletePermission::Allowed && !known.queue.is_same_queue(&desired)
        })
        .map(|known| known.queue.clone())
        .collect()
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
/// may still consume.
fn all_sidecars_current(observed: &Observed) -> bool {
    let (Some(bound), Some(binding)) = (observed.desired_binding(), &observed.binding) else {
        return false;
    };
    let Some(pods) = &binding.pods else {
        return false;
    };
    let (Some(desired), Some(Ok(_))) = (bound.injected_hash.as_deref(), &binding.target) else {
        return false;
    };
    pods.labelled.iter().all(|pod| {
        let pod_hash = pod.injection.as_ref().and_then(|it| it.hash.as_deref());
        actor_hash(pod_hash) == actor_hash(Some(desired))
    })
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
