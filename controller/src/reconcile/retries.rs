//! Faults of the last attempt (FW-6), and errors that persist (STA-7).

use super::model::observed::Observed;
use super::model::outcome::{ActiveOutcome, InterruptedStep, Outcome, QueueState};
use crate::fault::{Error, Fault, Reason, Requeue};

/// Rewrites the faults of the last attempt to say that only an event starts the next one.
pub(super) fn mark_retries_exhausted(outcome: &mut Outcome) {
    match outcome {
        Outcome::Active(active_outcome) => {
            let common = active_outcome.common_mut();
            if let QueueState::Fault(fault) = &mut common.queue {
                mark_exhausted(fault);
            }
            let scaling_fault = common.scaling.as_mut().and_then(|it| it.fault.as_mut());
            for fault in common.fault.iter_mut().chain(scaling_fault) {
                mark_exhausted(fault);
            }
        }
        Outcome::Deleting {
            fault: Some(fault), ..
        }
        | Outcome::DeletionBlocked { fault, .. } => mark_exhausted(fault),
        Outcome::Deleting { fault: None, .. }
        | Outcome::DeletionUnknown(_)
        | Outcome::Finalized => {}
    }
}

/// Skips faults that wait for a watch event or a timer: they are not attempts.
fn mark_exhausted(fault: &mut Fault) {
    if !matches!(fault.requeue, Requeue::Backoff | Requeue::SlowBackoff) {
        return;
    }
    fault.message = format!(
        "{}: {}; no more retries until this actor or one of its objects changes (controller.retry.attempts)",
        fault.reason, fault.message
    );
    fault.reason = Reason::RetriesExhausted;
}

/// Consecutive API server failures after which they are reported in the actor's status.
const REPORTED_AFTER: u32 = 2;

/// Whether the error that ended a reconcile is reported in the status. A transient error must persist first; a rejected
/// deletion of a child is reported at once.
pub(super) fn is_reported(error: &Error, failures: u32, deleting: bool) -> bool {
    failures >= REPORTED_AFTER || (deleting && error.requeue() == Requeue::SlowBackoff)
}

/// The outcome of a reconcile that an API server error ended before it had anything to report.
///
/// # Errors
/// `error` unless it is an API status, the only kind that is reported as a state of the actor.
pub(super) fn outcome_of_error(observed: &Observed, error: Error) -> Result<Outcome, Error> {
    let Some(fault) = api_fault(&error) else {
        return Err(error);
    };
    if observed.actor.metadata.deleting {
        let error = Box::new(error);
        return Ok(Outcome::DeletionBlocked { fault, error });
    }
    let mut active_outcome = ActiveOutcome::initial(observed, None);
    let common = active_outcome.common_mut();
    common.interrupted = Some(Box::new(InterruptedStep::Other.by(error)));
    common.fault = Some(fault);
    Ok(Outcome::Active(active_outcome))
}

/// Adds the persistent API server error that ended a reconcile after it had something to report. While scaling is on,
/// an error of the step that scales concerns scaling alone.
pub(super) fn add_interruption(outcome: &mut Outcome, failures: u32) {
    let Outcome::Active(active_outcome) = outcome else {
        return;
    };
    let common = active_outcome.common_mut();
    let Some(interruption) = common.interrupted.as_deref() else {
        return;
    };
    if !is_reported(&interruption.error, failures, false) {
        return;
    }
    let Some(fault) = api_fault(&interruption.error) else {
        return;
    };
    let scaling = common.scaling.as_mut();
    let known = match scaling.filter(|_| interruption.step == InterruptedStep::Scaling) {
        Some(scaling) => &mut scaling.fault,
        None => &mut common.fault,
    };
    known.get_or_insert(fault);
}

/// The fault for an API status, the only kind of error that is reported as a state of the actor.
fn api_fault(error: &Error) -> Option<Fault> {
    let Error::Api(kube::Error::Api(status)) = error else {
        return None;
    };
    Some(Fault {
        reason: Reason::ReconcileError,
        message: format!("the API server returned an error: {}", status.message),
        requeue: error.requeue(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Status;

    use super::{add_interruption, mark_retries_exhausted};
    use crate::fault::{Error, Fault, Reason, Requeue};
    use crate::reconcile::model::outcome::{
        CommonOutcome, InterruptedStep, Outcome, QueueState, ScalingOutcome,
    };

    fn fault(requeue: Requeue) -> Fault {
        Fault {
            reason: Reason::BrokerUnreachable,
            message: "no answer".to_owned(),
            requeue,
        }
    }

    /// FW-6
    #[test]
    fn last_attempt_marks_faults_as_exhausted_and_keeps_their_cause() {
        for requeue in [Requeue::Backoff, Requeue::SlowBackoff] {
            let active_outcome = CommonOutcome {
                queue: QueueState::Fault(fault(requeue)),
                fault: Some(fault(requeue)),
                scaling: Some(Box::new(ScalingOutcome {
                    fault: Some(fault(requeue)),
                    ..ScalingOutcome::default()
                })),
                ..CommonOutcome::default()
            };
            let deleting = Outcome::Deleting {
                fault: Some(fault(requeue)),
                deleted: Vec::new(),
                requeue,
                changed_target: false,
            };
            let blocked = Outcome::DeletionBlocked {
                fault: fault(requeue),
                error: Box::new(Error::Stale("an object")),
            };
            for mut outcome in [Outcome::Active(active_outcome.into()), deleting, blocked] {
                mark_retries_exhausted(&mut outcome);
                let faults = match &outcome {
                    Outcome::Active(active_outcome) => {
                        let common = active_outcome.common();
                        let QueueState::Fault(queue) = &common.queue else {
                            panic!()
                        };
                        let scaling = common.scaling.as_ref().unwrap();
                        vec![
                            queue,
                            common.fault.as_ref().unwrap(),
                            scaling.fault.as_ref().unwrap(),
                        ]
                    }
                    Outcome::Deleting { fault, .. } => vec![fault.as_ref().unwrap()],
                    Outcome::DeletionBlocked { fault, .. } => vec![fault],
                    Outcome::DeletionUnknown(_) | Outcome::Finalized => panic!(),
                };
                for fault in faults {
                    assert_eq!(
                        (fault.reason, fault.requeue),
                        (Reason::RetriesExhausted, requeue)
                    );
                    assert!(fault.message.starts_with("BrokerUnreachable: no answer; "));
                }
            }
        }
    }

    /// STA-7, FW-31: a webhook of KEDA's objects that cannot be reached, for example.
    #[test]
    fn persistent_error_of_the_step_that_scales_is_a_fault_of_scaling() {
        let status = || {
            Status::failure("failed calling webhook", "")
                .with_code(500)
                .boxed()
        };
        let faults = |step: InterruptedStep, scales: bool, failures, error| {
            let common = CommonOutcome {
                scaling: scales.then(Box::default),
                interrupted: Some(Box::new(step.by(error))),
                ..CommonOutcome::default()
            };
            let mut outcome = Outcome::Active(common.into());
            add_interruption(&mut outcome, failures);
            let Outcome::Active(active_outcome) = &outcome else {
                panic!()
            };
            let common = active_outcome.common();
            let scaling = common.scaling.as_ref().and_then(|it| it.fault.as_ref());
            [common.fault.as_ref(), scaling].map(|fault| fault.map(|it| it.reason))
        };
        let failed = || Error::Api(kube::Error::Api(status()));
        let reported = Some(Reason::ReconcileError);
        assert_eq!(
            faults(InterruptedStep::Scaling, true, 2, failed()),
            [None, reported]
        );
        assert_eq!(
            faults(InterruptedStep::Scaling, true, 1, failed()),
            [None, None],
            "may be transient"
        );
        assert_eq!(
            faults(InterruptedStep::Scaling, false, 2, failed()),
            [reported, None],
            "to be removed"
        );
        assert_eq!(
            faults(InterruptedStep::Other, true, 2, failed()),
            [reported, None]
        );
        let stale = Error::Stale("an object");
        assert_eq!(
            faults(InterruptedStep::Scaling, true, 2, stale),
            [None, None]
        );
    }

    /// FW-6
    #[test]
    fn faults_that_wait_for_an_event_or_timer_are_not_exhausted() {
        for requeue in [
            Requeue::AwaitChange,
            Requeue::Now,
            Requeue::After(Duration::from_secs(65)),
        ] {
            let common = CommonOutcome {
                queue: QueueState::Fault(fault(requeue)),
                ..CommonOutcome::default()
            };
            let mut outcome = Outcome::Active(common.into());
            mark_retries_exhausted(&mut outcome);
            let Outcome::Active(active_outcome) = &outcome else {
                panic!()
            };
            let QueueState::Fault(unchanged) = &active_outcome.common().queue else {
                panic!()
            };
            assert_eq!(*unchanged, fault(requeue));
        }
    }
}
