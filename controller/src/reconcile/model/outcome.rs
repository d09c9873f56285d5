//! The outcome of a reconcile: what it changed and the state it left.

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
use crate::reconcile::model::known_queues::is_same;
use crate::reconcile::model::observed::Observed;
use crate::record::{ScaledObjectRecord, WorkloadRecord};

/// The result of applying a plan.
#[derive(Debug)]
pub enum Outcome {
    /// The actor is live: not being deleted, or still in service while its queue drains.
    Ensured(Ensured),
    /// Deletion is in progress.
    Deleting {
        /// Why its queue could not be deleted.
        fault: Option<Fault>,
        /// Kinds of the objects deleted by this reconcile.
        deleted: Vec<&'static str>,
        /// When to requeue.
        retry: Requeue,
        /// This reconcile released our annotation (BIND-43).
        released: bool,
    },
    /// Deletion is in progress, but an API server error blocks it.
    Held {
        /// The fault to report.
        fault: Fault,
        /// The error that ended the reconcile.
        error: Box<Error>,
    },
    /// Deletion is in progress, but how far it got cannot be observed yet: the previous status stays.
    Unknown(Requeue),
    /// Our finalizer is removed, so there is no status left to report.
    Gone,
}

impl Outcome {
    /// Adds the kinds of objects deleted earlier.
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

    /// Whether a child's name is taken by an object that is not ours; `None` if not all children were checked.
    pub fn met_stranger(&self) -> Option<bool> {
        let Self::Ensured(ensured) = self else {
            return None;
        };
        let scaling = ensured.scaling.as_ref().and_then(|it| it.fault.as_ref());
        let mut faults = ensured.fault.iter().chain(scaling);
        let met = faults.any(|fault| fault.reason == Reason::NotOwned);
        (met || ensured.interrupted.is_none()).then_some(met)
    }

    /// The error that ended the reconcile before its plan was complete.
    pub fn interrupted(self) -> Option<Error> {
        match self {
            Self::Ensured(ensured) => ensured.interrupted.map(|error| *error),
            Self::Held { error, .. } => Some(*error),
            Self::Deleting { .. } | Self::Unknown(_) | Self::Gone => None,
        }
    }
}

/// The state after reconciling a live actor.
#[derive(Debug, Default)]
pub struct Ensured {
    pub queue: QueueState,
    /// The workload as last seen or written.
    pub workload: Option<Arc<WorkloadRecord>>,
    /// Result of checking the retired queues.
    pub retired: Box<RetiredQueues>,
    /// Why the workload does not match the spec.
    pub fault: Option<Fault>,
    /// The workload keeps its current template until it gets a rollout slot (SAFE-36).
    pub postponed: bool,
    /// The scaling objects; `None` while scaling is off.
    pub scaling: Option<Box<ScalingOutcome>>,
    /// The target is no longer autoscaled and must be scaled up from zero, but has no pods yet (SO-6).
    pub asleep: bool,
    /// Deadline for KEDA to finish deleting the `ScaledObject` of a workload that is no longer scaled.
    pub released_by: Option<Timestamp>,
    /// The error that ended the reconcile before its plan was complete. The work done until then is still reported.
    pub interrupted: Option<Box<Error>>,
    /// Set when the pods had to be stopped, because they would consume another actor's messages (QUE-3).
    pub stopped: Option<Box<Stopped>>,
    /// Everything a bound pod needs to start exists (BIND-3).
    pub bindable: bool,
    /// Dry-run state of the binding's pods.
    pub probe: Box<ProbeState>,
    /// Rollout state of the binding's existing pods.
    pub rolled: Box<Rolled>,
    /// State of our fields in the target's pod template.
    pub templated: Box<Templated>,
    /// Other contested fields, and drift that was reverted.
    pub contests: Box<Contests>,
    /// Objects applied by this reconcile, as the API server returned them: a watch could show another writer's change
    /// as ours.
    pub applied: Vec<InventoryEntry>,
}

impl Ensured {
    /// The outcome before anything is written.
    pub fn before(observed: &Observed, scaling_fault: Option<Fault>) -> Self {
        let scaling = observed.scales().then(|| {
            Box::new(ScalingOutcome {
                scaled_object: observed.scaling.scaled_object.ours().cloned(),
                fault: scaling_fault,
                waits_for: None,
            })
        });
        Self {
            workload: observed.workload.ours().cloned(),
            scaling,
            ..Self::default()
        }
    }

    /// Whether the queue in the previous status is not the one that serves now.
    pub fn serves_another_queue(&self, observed: &Observed) -> bool {
        let before = observed.previous.queue.as_ref();
        let wanted = observed.desired.as_ref().map(|desired| desired.queue());
        matches!(self.queue, QueueState::Ready(_) | QueueState::Created(_))
            && matches!((before, wanted), (Some(before), Ok(wanted)) if !is_same(before, &wanted))
    }
}

/// Dry-run state after a reconcile.
#[derive(Debug, Default)]
pub struct ProbeState {
    /// Result of the last dry run of this reconcile.
    pub outcome: Probed,
    /// Time until the next dry run is due.
    pub again: Option<Duration>,
}

/// Fields contested by other field managers.
#[derive(Debug, Default)]
pub struct Contests {
    /// Events of this reconcile.
    pub news: Vec<(Part, FieldEvent)>,
    /// When to check these fields again.
    pub again: Option<Duration>,
    /// Changes by others to the objects of a standalone actor, now reverted.
    pub restored: Vec<Restored>,
    /// Whether our claim on the target's owner was set (`true`) or removed (`false`): it marks the target as scaled by
    /// the queue (SO-5).
    pub claimed: Option<bool>,
}

impl Contests {
    pub fn look_again(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |before| before.min(wait)));
    }
}

/// Workloads scaled to zero by us. Nothing scales them up again, whatever the spec says.
#[derive(Debug, Default)]
pub struct Stopped {
    /// Kinds of workloads that this reconcile scaled to zero. Their recorded hashes are cleared, so that they are later
    /// applied in full again.
    pub kinds: Vec<&'static str>,
}

/// Scaling objects after a reconcile.
#[derive(Debug, Default)]
pub struct ScalingOutcome {
    /// The `ScaledObject` as last seen or written.
    pub scaled_object: Option<Arc<ScaledObjectRecord>>,
    /// Why it does not match the spec.
    pub fault: Option<Fault>,
    /// What a binding's first `ScaledObject` waits for.
    pub waits_for: Option<&'static str>,
}

/// Queue state after a reconcile.
#[derive(Debug, Default)]
pub enum QueueState {
    /// Not checked: status keeps what it reported before.
    #[default]
    Untouched,
    /// Matches the spec as far as known, with the broker's answer if this reconcile asked for it.
    Ready(Option<Serving>),
    /// Created by this reconcile.
    Created(Serving),
    /// Not known now, but it matched the spec when last seen: the broker does not answer (QUE-10), or it is slow and
    /// other calls are ahead of ours (OPS-22). Check again at the given time.
    Unanswered(Requeue),
    /// Queues are not managed by the operator (QUE-12).
    Unmanaged,
    /// The queue cannot be used.
    Fault(Fault),
}

impl QueueState {
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Created(_) | Self::Unmanaged)
    }

    /// When to requeue for a queue whose broker does not answer.
    pub fn retry(&self) -> Option<Requeue> {
        match self {
            Self::Unanswered(retry) => Some(*retry),
            _ => None,
        }
    }
}

/// Rollout state after a reconcile.
#[derive(Debug, Default, PartialEq)]
pub enum Rolled {
    /// Not checked: the previous status stays.
    #[default]
    Untouched,
    /// No pod needs replacing.
    Rest,
    /// New pods would get the sidecar, but the target has no pods yet.
    Proved,
    /// Blocked, or already in progress.
    Waits(Reason, String, Requeue),
    /// Halted: no further attempt is made.
    Halted(String),
    /// No further pod is replaced until the last replacement is ready.
    Stalled(String),
    /// The annotation that triggers the rollout was reverted, or another field manager owns it.
    Lost(FieldLoss),
    /// The annotation is reverted repeatedly: no further attempt is made.
    Left,
    /// A pod replacement was requested.
    Asked(By, String, Requeue),
}

/// How a pod replacement was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Annotation,
    Eviction,
}

/// State of our fields in a pod template after a reconcile.
#[derive(Debug, Default, PartialEq)]
pub enum Templated {
    /// Not checked.
    #[default]
    Untouched,
    /// Not wanted by the spec.
    Rest,
    /// Present in the template.
    Stands,
    /// Applied by this reconcile.
    Applied(TemplateStatus),
    /// Released by this reconcile, with the reason if the spec still wants it.
    Released(Option<Fault>),
    /// Not allowed in this template.
    Refused(Fault),
    /// Blocked, or already in progress.
    Waits(Reason, String, Requeue),
    /// Reverted by another field manager.
    Lost(FieldLoss),
    /// Reverted repeatedly: no further attempt is made.
    Left,
}

/// Result of checking the retired queues.
#[derive(Debug, Default)]
pub struct RetiredQueues {
    /// Queues that no longer exist.
    pub gone: Vec<QueueStatus>,
    /// When to check the remaining queues again.
    pub again: Option<Duration>,
}
