//! Why the queue of an actor that is being deleted can be neither counted nor deleted.

use asya_shared::config::TransportUnusable;

use crate::broker::BrokerError;
use crate::fault::{Error, Fault, Reason, Requeue, StepError};

/// The fault of a queue whose transport is no longer usable.
pub fn unreachable(what: &str, unusable: &TransportUnusable) -> Fault {
    let hint = "configure it again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the queue behind";
    fault(format!("{what}: {unusable}; {hint}"), Requeue::SlowBackoff)
}

/// The error of a broker. That too many calls are ahead is no state of the actor.
pub fn unanswered(what: &str, error: &BrokerError) -> StepError {
    if let Some(wait) = error.comes_again() {
        return Error::Busy(error.to_string(), wait).into();
    }
    let retry = match error.retry() {
        asked @ Requeue::After(_) => asked,
        _ => Requeue::Backoff,
    };
    fault(format!("{what}: {error}"), retry).into()
}

fn fault(message: String, retry: Requeue) -> Fault {
    Fault {
        reason: Reason::QueueDeletionFailed,
        message,
        retry,
    }
}
