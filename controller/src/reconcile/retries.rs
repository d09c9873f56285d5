//! Faults of the last attempt (FW-6), and errors that persist (STA-7).

use super::model::observed::Observed;
use super::model::outcome::{Ensured, Outcome, QueueState};
use crate::fault::{Error, Fault, Reason, Requeue};

/// Rewrites the faults of the last attempt to say that only an event starts the next one.
pub(super) fn give_up(outcome: &mut Outcome) {
    match outcome {
        Outcome::Ensured(ensured) => {
            if let QueueState::Fault(fault) = &mut ensured.queue {
                exhaust(fault);
            }
            let of_scaling = ensured.scaling.as_mut().and_then(|it| it.fault.as_mut());
            for fault in ensured.fault.iter_mut().chain(of_scaling) {
                exhaust(fault);
            }
        }
        Outcome::Deleting {
            fault: Some(fault), ..
        }
        | Outcome::Held { fault, .. } => exhaust(fault),
        Outcome::Deleting { fault: None, .. } | Outcome::Unknown(_) | Outcome::Gone => {}
    }
}

/// Skips faults that wait for a watch event or a timer: they are not attempts.
fn exhaust(fault: &mut Fault) {
    if !matches!(fault.retry, Requeue::Backoff | Requeue::SlowBackoff) {
        return;
    }
    fault.message = format!(
        "{}: {}; not tried again until this actor or an object of its changes (controller.retry.attempts)",
        fault.reason, fault.message
    );
    fault.reason = Reason::RetriesExhausted;
}

/// Consecutive API server failures after which they are reported in the actor's status.
const REPORTED_AFTER: u32 = 2;

/// Whether the error that ended a reconcile is reported in the status. A transient error must persist first; a refused
/// deletion of a child is reported at once.
pub(super) fn is_reported(error: &Error, failures: u32, deleting: bool) -> bool {
    failures >= REPORTED_AFTER || (deleting && error.retry() == Requeue::SlowBackoff)
}

/// The outcome of a reconcile that an API server error ended before it had anything to report.
///
/// # Errors
/// `error` unless it is an API status, the only kind that is reported as a state of the actor.
pub(super) fn interrupted(observed: &Observed, error: Error) -> Result<Outcome, Error> {
    let Error::Api(kube::Error::Api(status)) = &error else {
        return Err(error);
    };
    let fault = Fault {
        reason: Reason::ReconcileError,
        message: format!("the API server fails: {}", status.message),
        retry: error.retry(),
    };
    let error = Box::new(error);
    if observed.actor.metadata.deleting {
        return Ok(Outcome::Held { fault, error });
    }
    let mut ensured = Ensured::before(observed, None);
    (ensured.fault, ensured.interrupted) = (Some(fault), Some(error));
    Ok(Outcome::Ensured(ensured))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::give_up;
    use crate::fault::{Error, Fault, Reason, Requeue};
    use crate::reconcile::model::outcome::{Ensured, Outcome, QueueState, ScalingOutcome};

    fn fault(retry: Requeue) -> Fault {
        Fault {
            reason: Reason::BrokerUnreachable,
            message: "no answer".to_owned(),
            retry,
        }
    }

    /// FW-6
    #[test]
    fn last_attempt_marks_faults_as_exhausted_and_keeps_their_cause() {
        for retry in [Requeue::Backoff, Requeue::SlowBackoff] {
            let ensured = Ensured {
                queue: QueueState::Fault(fault(retry)),
                fault: Some(fault(retry)),
                scaling: Some(Box::new(ScalingOutcome {
                    fault: Some(fault(retry)),
                    ..ScalingOutcome::default()
                })),
                ..Ensured::default()
            };
            let deleting = Outcome::Deleting {
                fault: Some(fault(retry)),
                deleted: Vec::new(),
                retry,
                released: false,
            };
            let held = Outcome::Held {
                fault: fault(retry),
                error: Box::new(Error::Stale("an object")),
            };
            for mut outcome in [Outcome::Ensured(ensured), deleting, held] {
                give_up(&mut outcome);
                let told = match &outcome {
                    Outcome::Ensured(ensured) => {
                        let QueueState::Fault(queue) = &ensured.queue else {
                            panic!()
                        };
                        let scaling = ensured.scaling.as_ref().unwrap();
                        vec![
                            queue,
                            ensured.fault.as_ref().unwrap(),
                            scaling.fault.as_ref().unwrap(),
                        ]
                    }
                    Outcome::Deleting { fault, .. } => vec![fault.as_ref().unwrap()],
                    Outcome::Held { fault, .. } => vec![fault],
                    Outcome::Unknown(_) | Outcome::Gone => panic!(),
                };
                for fault in told {
                    assert_eq!(
                        (fault.reason, fault.retry),
                        (Reason::RetriesExhausted, retry)
                    );
                    assert!(fault.message.starts_with("BrokerUnreachable: no answer; "));
                }
            }
        }
    }

    /// FW-6
    #[test]
    fn faults_that_wait_for_an_event_or_timer_are_not_exhausted() {
        for retry in [
            Requeue::AwaitChange,
            Requeue::Now,
            Requeue::After(Duration::from_secs(65)),
        ] {
            let mut outcome = Outcome::Ensured(Ensured {
                queue: QueueState::Fault(fault(retry)),
                ..Ensured::default()
            });
            give_up(&mut outcome);
            let Outcome::Ensured(ensured) = &outcome else {
                panic!()
            };
            let QueueState::Fault(told) = &ensured.queue else {
                panic!()
            };
            assert_eq!(*told, fault(retry));
        }
    }
}
