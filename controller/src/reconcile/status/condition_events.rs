//! Events for conditions that a status reports for the first time.

use asya_shared::api::AsyncActorStatus;

use crate::fault::Reason;
use crate::reconcile::model::condition_types::{SCALING_READY, WORKLOAD_READY};
use crate::telemetry::events::EventReason;

/// Returns the first condition worth an Event that begins with this status.
pub(super) fn event_of_new_condition<'a>(
    previous: &'a AsyncActorStatus,
    after: &'a AsyncActorStatus,
) -> Option<(EventReason, &'a str)> {
    let reportable = [
        (
            WORKLOAD_READY,
            Reason::ValidationError,
            EventReason::ValidationFailed,
        ),
        (WORKLOAD_READY, Reason::NotOwned, EventReason::NotOwned),
        (SCALING_READY, Reason::NotOwned, EventReason::NotOwned),
    ];
    let find = |status: &'a AsyncActorStatus, kind: &str| {
        status.conditions.iter().find(|c| c.type_ == kind)
    };
    reportable.into_iter().find_map(|(kind, reason, event)| {
        let now = find(after, kind).filter(|now| now.reason == reason.to_string())?;
        let was = find(previous, kind).map(|was| (&was.reason, &was.message));
        (was != Some((&now.reason, &now.message))).then_some((event, &*now.message))
    })
}
