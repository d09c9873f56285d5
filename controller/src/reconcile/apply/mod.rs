//! Runs a plan's writes in order. What one refuses keeps those from running that need it, and no others.

mod bind;
mod child;
mod claim;
mod contest;
mod delete;
mod ensure;
mod finalizer;
mod messages;
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

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::InventoryEntry;
use k8s_openapi::jiff::Timestamp;

pub use child::APPLIED;
#[cfg(test)]
pub use child::entry;
pub use retired::Looked;
pub use roll::{By, Rolled};
pub use template::{TAKEN_BACK, Templated};

use finalizer::{Presence, add_finalizer, end_foreground};

use super::conflict::Part;
use super::conflict::ledger::News;
use super::conflict::restoring::Restored;
use super::injection::Probed;
use super::observe::Observed;
use super::observe::known::is_same;
use super::plan::{Finalizers, Plan};
use super::{Context, Error, Fault, Reason, Retry};
use crate::queue::Serving;
use crate::record::{ScaledObjectRecord, WorkloadRecord};

/// What a pass did, and what stands now.
#[derive(Debug)]
pub enum Outcome {
    /// The actor lives.
    Ensured(Ensured),
    /// The actor is on its way out.
    Deleting {
        /// Why its queue could not be deleted.
        fault: Option<Fault>,
        /// Kinds of the objects that were deleted in this pass.
        deleted: Vec<&'static str>,
        /// When to look again.
        retry: Retry,
        /// Our annotation was given up in this pass (BIND-43).
        released: bool,
    },
    /// The actor is on its way out, and the API server keeps it from going further.
    Held {
        /// What it says.
        fault: Fault,
        /// What ended the pass.
        error: Box<Error>,
    },
    /// The actor is on its way out, and nobody can tell yet how far: what was told holds.
    Unknown(Retry),
    /// Our finalizer is gone: there is nothing left to tell.
    Gone,
}

impl Outcome {
    /// With the kinds of objects that were deleted before.
    fn with(self, before: Vec<&'static str>) -> Self {
        match self {
            Self::Deleting {
                fault,
                mut deleted,
                retry,
                released,
            } => {
                deleted.extend(before);
                Self::Deleting {
                    fault,
                    deleted,
                    retry,
                    released,
                }
            }
            other => other,
        }
    }

    /// Whether the name of a child is taken by an object of others; `None` where nobody looked at all of them.
    pub fn met_stranger(&self) -> Option<bool> {
        let Self::Ensured(ensured) = self else {
            return None;
        };
        let scaling = ensured.scaling.as_ref().and_then(|it| it.fault.as_ref());
        let mut faults = ensured.fault.iter().chain(scaling);
        let met = faults.any(|fault| fault.reason == Reason::NotOwned);
        (met || ensured.interrupted.is_none()).then_some(met)
    }

    /// What ended the pass before its plan was done.
    pub fn interrupted(self) -> Option<Error> {
        match self {
            Self::Ensured(ensured) => ensured.interrupted.map(|error| *error),
            Self::Held { error, .. } => Some(*error),
            Self::Deleting { .. } | Self::Unknown(_) | Self::Gone => None,
        }
    }
}

/// What stands after a pass over an actor that lives.
#[derive(Debug, Default)]
pub struct Ensured {
    /// About the queue.
    pub queue: QueueState,
    /// The workload as last seen or written.
    pub workload: Option<Arc<WorkloadRecord>>,
    /// About retired queues.
    pub retired: Box<Looked>,
    /// Why the workload is not what it should be.
    pub fault: Option<Fault>,
    /// It keeps the template that it has until it is its turn to be rolled (SAFE-36).
    pub postponed: bool,
    /// What scales the workload; `None` while nothing should.
    pub scaling: Option<Box<Scaled>>,
    /// A target that nobody scales any more is to get pods again, and has none yet (SO-6).
    pub asleep: bool,
    /// When KEDA's time to let go of a workload that is no longer to be scaled ends.
    pub released_by: Option<Timestamp>,
    /// What ended the pass before its plan was done; what had been done by then is told.
    pub interrupted: Option<Box<Error>>,
    /// What keeps pods from another actor's messages (QUE-3).
    pub stopped: Option<Box<Stopped>>,
    /// What a binding's pods cannot start without is there (BIND-3).
    pub bindable: bool,
    /// About dry runs of a binding's pods.
    pub probe: Box<ProbeState>,
    /// What became of pods of a binding that ran before.
    pub rolled: Box<Rolled>,
    /// What became of our part of a target's pod template.
    pub templated: Box<Templated>,
    /// What became of other fields of a binding that are contested.
    pub contests: Box<Contests>,
    /// What was applied in this pass, as the API server answered: a rival's write must not pass for ours.
    pub applied: Vec<InventoryEntry>,
}

/// What is known of dry runs after a pass.
#[derive(Debug, Default)]
pub struct ProbeState {
    /// What the last one of this pass has come to.
    pub outcome: Probed,
    /// When the next one is due.
    pub again: Option<Duration>,
}

/// What became of contested fields.
#[derive(Debug, Default)]
pub struct Contests {
    /// In this pass.
    pub news: Vec<(Part, News)>,
    /// When to look at them again.
    pub again: Option<Duration>,
    /// What others had changed of the objects of an actor whose workload we make, and was restored.
    pub restored: Vec<Restored>,
    /// The target's owner was told that the queue scales it, or that it does no more (SO-5).
    pub claimed: Option<bool>,
}

impl Contests {
    fn look_again(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |before| before.min(wait)));
    }
}

/// Nothing scales a workload that gets no pods, whatever the spec says.
#[derive(Debug, Default)]
pub struct Stopped {
    /// Kinds of workloads whose pods were taken in this pass: all of it is to be applied again one day.
    pub kinds: Vec<&'static str>,
}

/// What scales a workload after a pass.
#[derive(Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the object is called so by KEDA")]
pub struct Scaled {
    /// The `ScaledObject` as last seen or written.
    pub scaled_object: Option<Arc<ScaledObjectRecord>>,
    /// Why it is not what it should be.
    pub fault: Option<Fault>,
    /// What the first one of a binding waits for.
    pub waits_for: Option<&'static str>,
}

/// What is known of the queue after a pass.
#[derive(Debug, Default)]
pub enum QueueState {
    /// Nothing was asked, nothing is told.
    #[default]
    Untouched,
    /// As wanted, as far as we know; with what the broker said of it in this pass.
    Ready(Option<Serving>),
    /// As wanted, and made in this pass.
    Created(Serving),
    /// Not known for now: as wanted when last seen, and the broker does not answer (QUE-10), or others wait for it
    /// (OPS-22): look again then.
    Unanswered(Retry),
    /// Somebody else's business (QUE-12).
    Unmanaged,
    /// It cannot be used.
    Fault(Fault),
}

impl QueueState {
    fn is_usable(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Created(_) | Self::Unmanaged)
    }

    /// When to look again at a queue whose broker does not answer.
    pub fn retry(&self) -> Option<Retry> {
        match self {
            Self::Unanswered(retry) => Some(*retry),
            _ => None,
        }
    }
}

/// Runs `plan`.
///
/// # Errors
/// When the API server fails in a way that is not the actor's fault.
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
            // Who is left alone rolls nothing.
            context.slots.forget(observed.key());
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
            // Last, because a broker that is not used any more may be slow; and not while the workload
            // may have to stay as it was.
            if ensured.fault.is_none() {
                ensured.retired = Box::new(retired::look(context, observed, retired).await?);
            }
            Ok(Outcome::Ensured(ensured))
        }
        Plan::Bind(plan) => bind::bind(context, observed, *plan).await,
        Plan::Confirm(wait) => Ok(Outcome::Deleting {
            fault: None,
            deleted: Vec::new(),
            retry: Retry::After(wait),
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

/// What stands after a pass that the API server ended before it had done anything that could be told.
///
/// # Errors
/// What is no state of an actor.
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

/// Whether status told of another queue than the one that serves now.
fn is_another_queue(observed: &Observed, ensured: &Ensured) -> bool {
    let before = observed.previous.queue.as_ref();
    let wanted = observed.desired.as_ref().map(|desired| desired.queue());
    matches!(ensured.queue, QueueState::Ready(_) | QueueState::Created(_))
        && matches!((before, wanted), (Some(before), Ok(wanted)) if !is_same(before, &wanted))
}

fn seen_scaling(observed: &Observed, fault: Option<Fault>) -> Option<Box<Scaled>> {
    observed.scales().then(|| {
        Box::new(Scaled {
            scaled_object: observed.scaling.scaled_object.ours().cloned(),
            fault,
            waits_for: None,
        })
    })
}

#[cfg(test)]
mod tests;
