//! Why the queue of an actor that is being deleted can be neither counted nor deleted.

use asya_shared::config::TransportUnusable;

use super::BrokerError;
use crate::fault::{Error, Fault, Reason, Requeue, StepError};

/// The fault of a queue whose transport is no longer usable.
pub fn unusable_transport_fault(failure: &str, unusable: &TransportUnusable) -> Fault {
    let hint = "configure the transport again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the \
     queue behind";
    fault(
        format!("{failure}: {unusable}; {hint}"),
        Requeue::SlowBackoff,
    )
}

/// The error of a broker call. If the broker was not called, that is not a fault of the actor.
pub fn broker_step_error(failure: &str, error: &BrokerError) -> StepError {
    if let Some(wait) = error.not_called_delay().filter(|_| !error.is_reportable()) {
        return Error::Busy(error.to_string(), wait).into();
    }
    let requeue = match error.requeue() {
        requested @ Requeue::After(_) => requested,
        _ => Requeue::Backoff,
    };
    fault(format!("{failure}: {error}"), requeue).into()
}

fn fault(message: String, requeue: Requeue) -> Fault {
    Fault {
        reason: Reason::QueueDeletionFailed,
        message,
        requeue,
    }
}
