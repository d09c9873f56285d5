//! Reports the result of a reconcile: a pure function computes the status, which is written once if it changed.

mod active;
mod binding;
pub mod common;
mod condition_events;
mod conditions;
mod deletion;
mod drain;
mod drift;
mod inventory;
mod legacy_fields;
mod other_autoscaler;
mod queue;
mod replicas;
mod retired;
mod scaling;
mod standalone;
mod state;
mod transport;
mod write;
mod write_delay;

use active::{ActiveMode, active_report};
use condition_events::event_of_new_condition;
use deletion::deletion_report;
use k8s_openapi::jiff::Timestamp;
use write::write;

use super::model::binding::ObservedBinding;
use super::model::observed::Observed;
use super::model::outcome::{ActiveOutcome, Outcome};
use super::status::common::Report;
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::telemetry::events::NewEvent;

pub use write::report_deletion;

/// Writes the status if it differs from the stored one. Returns when to requeue.
///
/// # Errors
/// When the status cannot be written.
pub async fn report(
    context: &Context,
    observed: &Observed,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Requeue, Error> {
    let Some(report) = build(observed, outcome, now) else {
        return Ok(Requeue::AwaitChange);
    };
    if let Some(wait) = write_delay::delay(observed, outcome, &report.status, now) {
        return Ok(report.requeue.sooner(Requeue::After(wait)));
    }
    let actor = &observed.actor;
    let publish = |event: NewEvent| context.events.publish(actor, event.reason, &event.message);
    if let Some(event) = event_of_new_condition(&observed.previous, &report.status) {
        publish(event);
    }
    if report.status != observed.previous {
        write(context, actor, &report.status).await?;
        report.events.into_iter().for_each(publish);
    }
    Ok(report.requeue)
}

/// Computes the report; `None` if the actor no longer exists.
pub fn build(observed: &Observed, outcome: &Outcome, now: Timestamp) -> Option<Report> {
    match outcome {
        Outcome::Active(outcome) => {
            let mode = match outcome {
                ActiveOutcome::Standalone(outcome) => ActiveMode::Standalone(outcome),
                ActiveOutcome::Binding(outcome) => {
                    let binding = observed.binding.as_ref();
                    ActiveMode::Binding(binding.unwrap_or(&ObservedBinding::Unknown), outcome)
                }
            };
            Some(active_report(observed, mode, now))
        }
        Outcome::Deleting { .. }
        | Outcome::DeletionBlocked { .. }
        | Outcome::DeletionUnknown(_)
        | Outcome::Finalized => deletion_report(observed, outcome, now),
    }
}

#[cfg(test)]
mod tests;
