//! What a reconcile did, and what stands now.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{InventoryEntry, QueueStatus, TemplateStatus};
use k8s_openapi::jiff::Timestamp;

use crate::broker::Serving;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::Part;
use crate::reconcile::contention::history::{FieldEvent, FieldLoss};
use crate::reconcile::contention::restoring::Restored;
use crate::reconcile::injection::Probed;
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
        retry: Requeue,
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
    Unknown(Requeue),
    /// Our finalizer is gone: there is nothing left to tell.
    Gone,
}

impl Outcome {
    /// With the kinds of objects that were deleted before.
    pub fn with(self, before: Vec<&'static str>) -> Self {
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
    pub news: Vec<(Part, FieldEvent)>,
    /// When to look at them again.
    pub again: Option<Duration>,
    /// What others had changed of the objects of an actor whose workload we make, and was restored.
    pub restored: Vec<Restored>,
    /// The target's owner was told that the queue scales it, or that it does no more (SO-5).
    pub claimed: Option<bool>,
}

impl Contests {
    pub fn look_again(&mut self, wait: Duration) {
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
    Unanswered(Requeue),
    /// Somebody else's business (QUE-12).
    Unmanaged,
    /// It cannot be used.
    Fault(Fault),
}

impl QueueState {
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Created(_) | Self::Unmanaged)
    }

    /// When to look again at a queue whose broker does not answer.
    pub fn retry(&self) -> Option<Requeue> {
        match self {
            Self::Unanswered(retry) => Some(*retry),
            _ => None,
        }
    }
}

/// What became of a rollout in a pass.
#[derive(Debug, Default, PartialEq)]
pub enum Rolled {
    /// Nobody asked: what was told before holds.
    #[default]
    Untouched,
    /// There is nothing to replace.
    Rest,
    /// New pods would have the sidecar; there are none yet.
    Proved,
    /// Something stands in the way, or is on its way.
    Waits(Reason, String, Requeue),
    /// No further try is made.
    Halted(String),
    /// No further pod is replaced until the last replacement is ready.
    Stalled(String),
    /// The annotation that asks for it was taken back, or belongs to another.
    Lost(FieldLoss),
    /// It is taken back again and again: no further try is made.
    Left,
    /// A replacement was asked for.
    Asked(By, String, Requeue),
}

/// How a replacement was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By our annotation.
    Annotation,
    /// By an eviction.
    Eviction,
}

/// What became of our part of a pod template in a pass.
#[derive(Debug, Default, PartialEq)]
pub enum Templated {
    /// Nobody looked.
    #[default]
    Untouched,
    /// Nobody asks for it.
    Rest,
    /// It stands there.
    Stands,
    /// It was applied.
    Applied(TemplateStatus),
    /// It was given up, and why, if that is not asked for.
    Released(Option<Fault>),
    /// It may not stand there.
    Refused(Fault),
    /// Something stands in the way, or is on its way.
    Waits(Reason, String, Requeue),
    /// It was taken back.
    Lost(FieldLoss),
    /// It is taken back again and again: no further try is made.
    Left,
}

/// What a look at the retired queues showed.
#[derive(Debug, Default)]
pub struct Looked {
    /// They are no more.
    pub gone: Vec<QueueStatus>,
    /// When to look again at the others.
    pub again: Option<Duration>,
}
