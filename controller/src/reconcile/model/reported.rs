//! Which obstacles an earlier reconcile has already reported by an Event. Read from conditions, so it only suppresses
//! repeated Events and decides nothing else (FW-30).

use super::condition_types::READY;
use super::observed::Observed;
use crate::fault::Reason;

/// Whether the actor was already not ready for this reason. Each obstacle gets one Event.
pub fn is_reported(observed: &Observed, reason: Reason) -> bool {
    let reason = reason.to_string();
    let mut previous = observed.previous.conditions.iter();
    previous.any(|condition| condition.type_ == READY && condition.reason == reason)
}
