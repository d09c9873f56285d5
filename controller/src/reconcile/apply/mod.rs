//! Executes a plan's writes in order. A refused write blocks only the steps that depend on it.

mod bind;
mod child;
mod claim;
mod contest;
mod delete;
mod ensure;
mod finalizer;
mod messages;
pub mod observed_scaling;
mod parent;
mod probe;
mod queue;
mod recreate;
mod remove_queue;
mod restored;
mod retired;
mod rival;
mod roll;
mod scaling;
pub mod shared;
mod stop;
mod template;
mod template_probe;
mod unbind;
mod wake;
mod workload;

use finalizer::{Presence, add_finalizer, end_foreground};

use super::model::observed::Observed;
use super::plan::decision::Plan;
use super::plan::finalizers::Finalizers;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::apply::observed_scaling::{is_another_queue, seen_scaling};
use crate::reconcile::model::outcome::{Ensured, Outcome};

pub use child::APPLIED;
#[cfg(test)]
pub use child::entry;
pub use template::TAKEN_BACK;

/// Executes `plan`.
///
/// # Errors
/// When the API server fails in a way that is not attributable to the actor.
pub async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Outcome, Error> {
    let actor = &observed.actor;
    match plan.finalizers() {
        Finalizers::Add if add_finalizer(context, actor).await? == Presence::Gone => {
            return Ok(Outcome::Gone);
        }
        Finalizers::Keep | Finalizers::Add => {}
        Finalizers::EndForeground => end_foreground(context, actor).await?,
    }
    match plan {
        Plan::Rest(seen) => {
            // Nothing is rolled out for this actor, so it must not hold a rollout slot.
            context.rollout_slots.forget(observed.key());
            Ok(Outcome::Ensured(Ensured {
                workload: observed.workload.ours().cloned(),
                fault: seen.workload,
                scaling: seen_scaling(observed, seen.scaling),
                ..Ensured::default()
            }))
        }
        Plan::Ensure(mut plan) => {
            let retired = std::mem::take(&mut plan.retired);
            let mut ensured = ensure::ensure(context, observed, plan).await?;
            if is_another_queue(observed, &ensured) {
                context.depths.forget(observed.key());
            }
            // Runs last because a broker that is no longer used may be slow, and only without a fault: a workload that
            // could not be updated may have to stay as it was.
            if ensured.fault.is_none() {
                ensured.retired = Box::new(retired::look(context, observed, retired).await?);
            }
            Ok(Outcome::Ensured(ensured))
        }
        Plan::Bind(plan) => bind::bind(context, observed, *plan).await,
        Plan::Confirm(wait) => Ok(Outcome::Deleting {
            fault: None,
            deleted: Vec::new(),
            retry: Requeue::After(wait),
            released: false,
        }),
        Plan::Delete(plan) => {
            let outcome = delete::delete(context, observed, plan).await?;
            if matches!(outcome, Outcome::Gone) {
                context.depths.forget(observed.key());
            }
            Ok(outcome)
        }
    }
}

/// Builds the outcome of a reconcile that an API server error ended before it had anything to report.
///
/// # Errors
/// Returns `error` unless it is an API status, the only kind that is reported as a state of the actor.
pub fn interrupted(observed: &Observed, error: Error) -> Result<Outcome, Error> {
    let Error::Api(kube::Error::Api(status)) = &error else {
        return Err(error);
    };
    let fault = Fault {
        reason: Reason::ReconcileError,
        message: format!("the API server fails: {}", status.message),
        retry: error.retry(),
    };
    if observed.actor.metadata.deleting {
        let error = Box::new(error);
        return Ok(Outcome::Held { fault, error });
    }
    Ok(Outcome::Ensured(Ensured {
        workload: observed.workload.ours().cloned(),
        scaling: seen_scaling(observed, None),
        fault: Some(fault),
        interrupted: Some(Box::new(error)),
        ..Ensured::default()
    }))
}

#[cfg(test)]
mod tests;
