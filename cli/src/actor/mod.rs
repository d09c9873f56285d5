//! Reads actors as the API server returns them.

mod queue_owner;
mod rollout;

use asya_shared::api::{AsyncActorStatus, QueueDeletionPolicy, QueueStatus};
use asya_shared::names::annotation;
use asya_shared::validate::is_switched_on;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

pub use queue_owner::{CONFLICT, has_confirmed_queue, is_queue_unmanaged, queue_conflict};
pub use rollout::{next_step, roll_now, strategy};

/// The status of an actor. Fields in the format of another release count as absent.
pub fn status_of(actor: &Value) -> AsyncActorStatus {
    serde_json::from_value(actor["status"].clone()).unwrap_or_default()
}

pub fn condition<'a>(status: &'a AsyncActorStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|it| it.type_ == kind)
}

/// What happens to a queue that the actor no longer uses.
pub fn retired_outcome(queue: &QueueStatus) -> &'static str {
    if queue.unconfirmed {
        "may exist: it is deleted if it is this actor's and empty, once its broker responds and no pod uses it"
    } else {
        "is deleted once it is empty"
    }
}

pub fn annotation_of<'a>(actor: &'a Value, name: &str) -> Option<&'a str> {
    actor["metadata"]["annotations"].get(name)?.as_str()
}

pub fn deletion_policy(actor: &Value) -> QueueDeletionPolicy {
    QueueDeletionPolicy::from_raw(Some(&actor["spec"]["queue"]))
}

/// Whether the deletion policy or an annotation keeps the queue when the actor is deleted; does not consider
/// `is_orphaned`.
pub fn keeps_queue(actor: &Value) -> bool {
    let is_skipped = is_switched_on(annotation_of(actor, annotation::SKIP_QUEUE_DELETION));
    is_skipped || deletion_policy(actor) == QueueDeletionPolicy::Retain
}

/// Whether deleting the actor leaves everything behind (FW-23).
pub fn is_orphaned(actor: &Value) -> bool {
    actor["spec"]["deletionPolicy"] == "Orphan"
}
