//! Actors as the API server has them.

mod rollout;

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

pub use rollout::{next_step, roll_now, strategy};

/// The status of an actor. Fields that another release wrote otherwise read as absent.
pub fn status_of(actor: &Value) -> AsyncActorStatus {
    serde_json::from_value(actor["status"].clone()).unwrap_or_default()
}

/// The condition of a type.
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
