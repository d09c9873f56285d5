//! Events for conditions that a status reports for the first time.

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::fault::Reason;
use crate::reconcile::model::condition_types::{SCALING_READY, WORKLOAD_READY};
use crate::telemetry::events::{EventReason, NewEvent};

/// Conditions that are worth an Event: type, reason, and the reason of the Event.
const REPORTED: [(&str, Reason, EventReason); 3] = [
    (
        WORKLOAD_READY,
        Reason::ValidationError,
        EventReason::ValidationFailed,
    ),
    (WORKLOAD_READY, Reason::NotOwned, EventReason::NotOwned),
    (SCALING_READY, Reason::NotOwned, EventReason::NotOwned),
];

/// The Event of the first of these conditions that begins with this status.
pub(super) fn event_of_new_condition(
    previous: &AsyncActorStatus,
    after: &AsyncActorStatus,
) -> Option<NewEvent> {
    REPORTED.into_iter().find_map(|(kind, reason, event)| {
        let now = find(after, kind).filter(|now| now.reason == reason.to_string())?;
        let was = find(previous, kind);
        let is_new =
            was.is_none_or(|was| (&was.reason, &was.message) != (&now.reason, &now.message));
        is_new.then(|| NewEvent::new(event, &*now.message))
    })
}

fn find<'a>(status: &'a AsyncActorStatus, kind: &str) -> Option<&'a Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == kind)
}
