//! The outcome of a reconcile: what it changed and the state it left.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{InventoryEntry, QueueStatus, TemplateStatus};
use k8s_openapi::jiff::Timestamp;

use crate::broker::ReadyQueue;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::ContestedPart;
use crate::reconcile::contention::drift_restore::RestoredDrift;
use crate::reconcile::contention::history::{FieldConflict, FieldEvent};
use crate::reconcile::model::observed::Observed;
use crate::record::{ScaledObjectRecord, WorkloadRecord};

/// The result of applying a plan.
#[derive(Debug)]
pub enum Outcome {
    /// The actor is active: not being deleted, or still receiving messages until its queue is empty.
    Active(ActiveOutcome),
    /// Deletion is in progress.
    Deleting {
        /// Why its queue or its sidecars could not be removed.
        fault: Option<Fault>,
        /// Kinds of the objects deleted by this reconcile.
        deleted: Vec<&'static str>,
        requeue: Requeue,
        /// This reconcile gave up or changed our fields, or evicted a pod; the controller must react (BIND-43).
        changed_target: bool,
    },
    /// Deletion is in progress, but an API server error blocks it.
    DeletionBlocked {
        fault: Fault,
        /// The error that ended the reconcile.
        error: Box<Error>,
    },
    /// Deletion is in progress, but how far it got cannot be observed yet: the previous status stays.
    DeletionUnknown(Requeue),
    /// Our finalizer is removed, so there is no status left to report.
    Finalized,
}

impl Outcome {
    /// Adds the kinds of objects deleted earlier.
    pub fn with_deleted(self, earlier: Vec<&'static str>) -> Self {
        match self {
            Self::Deleting {
                fault,
                mut deleted,
                requeue,
                changed_target,
            } => {
                deleted.extend(earlier);
                Self::Deleting {
                    fault,
                    deleted,
                    requeue,
                    changed_target,
                }
            }
            other => other,
        }
    }

    /// Whether a child's name is taken by an object that is not ours; `None` if not all children were checked.
    pub fn has_foreign_child(&self) -> Option<bool> {
        let Self::Active(active_outcome) = self else {
            return None;
        };
        let common = active_outcome.common();
        let scaling = common.scaling.as_ref().and_then(|it| it.fault.as_ref());
        let mut faults = common.fault.iter().chain(scaling);
        let foreign = faults.any(|fault| fault.reason == Reason::NotOwned);
        (foreign || common.interrupted.is_none()).then_some(foreign)
    }

    /// The error that ended the reconcile before its plan was complete.
    pub fn interrupted(self) -> Option<Error> {
        match self {
            Self::Active(mut active_outcome) => {
                let interrupted = active_outcome.common_mut().interrupted.take();
                interrupted.map(|it| it.error)
            }
            Self::DeletionBlocked { error, .. } => Some(*error),
            Self::Deleting { .. } | Self::DeletionUnknown(_) | Self::Finalized => None,
        }
    }
}

/// The state after reconciling an active actor.
#[derive(Debug)]
pub enum ActiveOutcome {
    Standalone(Box<StandaloneOutcome>),
    Binding(Box<BindingOutcome>),
}

/// The part of the outcome that both modes share.
#[derive(Debug, Default)]
pub struct CommonOutcome {
    pub queue: QueueState,
    /// Result of checking the retired queues.
    pub retired: RetiredQueues,
    /// Why the workload or the target does not match the spec.
    pub fault: Option<Fault>,
    /// The scaling objects; `None` while scaling is off.
    pub scaling: Option<Box<ScalingOutcome>>,
    /// Deadline for KEDA to finish deleting the `ScaledObject` of a workload that is no longer scaled.
    pub keda_deadline: Option<Timestamp>,
    /// The error that ended the reconcile before its plan was complete. The work done until then is still reported.
    pub interrupted: Option<Box<Interruption>>,
    /// Objects applied by this reconcile, as the API server returned them: a watch could show another writer's change
    /// as ours.
    pub applied: Vec<InventoryEntry>,
}

/// The state after reconciling an active standalone actor.
#[derive(Debug, Default)]
pub struct StandaloneOutcome {
    pub common: CommonOutcome,
    /// The workload as last observed or written.
    pub workload: Option<Arc<WorkloadRecord>>,
    /// The workload keeps its current template until it gets a rollout slot (SAFE-36).
    pub postponed: bool,
    /// Set when the pods had to be stopped, because they would consume another actor's messages (QUE-3).
    pub stopped: Option<StoppedWorkloads>,
    /// Changes by others to the actor's objects, now reverted.
    pub restored: Vec<RestoredDrift>,
    /// When to look for such changes again.
    pub drift_recheck_after: Option<Duration>,
}

/// The state after reconciling an active binding.
#[derive(Debug, Default)]
pub struct BindingOutcome {
    pub common: CommonOutcome,
    /// Everything a bound pod needs to start exists (BIND-3).
    pub can_bind: bool,
    /// Dry-run state of the pods.
    pub probe: ProbeState,
    /// Rollout state of existing pods.
    pub rollout: RolloutOutcome,
    /// State of our fields in the target's pod template.
    pub template: TemplateOutcome,
    /// The target is no longer autoscaled and must be scaled up from zero, but has no pods yet (SO-6).
    pub awaits_scale_up: bool,
    /// Other contested fields.
    pub contention: ContentionOutcome,
}

/// An error that ended a reconcile before its plan was complete.
#[derive(Debug)]
pub struct Interruption {
    pub error: Error,
    pub step: InterruptedStep,
}

/// The step that an error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptedStep {
    /// The step that applies the objects that scale the workload.
    Scaling,
    Other,
}

impl InterruptedStep {
    pub fn by(self, error: Error) -> Interruption {
        Interruption { error, step: self }
    }
}

impl ActiveOutcome {
    /// The outcome before anything is written.
    pub fn initial(observed: &Observed, scaling_fault: Option<Fault>) -> Self {
        if observed.binding.is_some() {
            BindingOutcome::initial(observed, scaling_fault).into()
        } else {
            StandaloneOutcome::initial(observed, scaling_fault).into()
        }
    }

    pub fn common(&self) -> &CommonOutcome {
        match self {
            Self::Standalone(outcome) => &outcome.common,
            Self::Binding(outcome) => &outcome.common,
        }
    }

    pub fn common_mut(&mut self) -> &mut CommonOutcome {
        match self {
            Self::Standalone(outcome) => &mut outcome.common,
            Self::Binding(outcome) => &mut outcome.common,
        }
    }
}

impl From<StandaloneOutcome> for ActiveOutcome {
    fn from(outcome: StandaloneOutcome) -> Self {
        Self::Standalone(Box::new(outcome))
    }
}

impl From<BindingOutcome> for ActiveOutcome {
    fn from(outcome: BindingOutcome) -> Self {
        Self::Binding(Box::new(outcome))
    }
}

impl StandaloneOutcome {
    /// The outcome before anything is written.
    pub fn initial(observed: &Observed, scaling_fault: Option<Fault>) -> Self {
        Self {
            common: CommonOutcome::initial(observed, scaling_fault),
            workload: observed.workload.ours().cloned(),
            ..Self::default()
        }
    }
}

impl BindingOutcome {
    /// The outcome before anything is written.
    pub fn initial(observed: &Observed, scaling_fault: Option<Fault>) -> Self {
        Self {
            common: CommonOutcome::initial(observed, scaling_fault),
            ..Self::default()
        }
    }
}

impl CommonOutcome {
    /// The outcome before anything is written.
    pub fn initial(observed: &Observed, scaling_fault: Option<Fault>) -> Self {
        let scaling = observed.scales().then(|| {
            Box::new(ScalingOutcome {
                scaled_object: observed.scaling.scaled_object.ours().cloned(),
                fault: scaling_fault,
                waits_for: None,
            })
        });
        Self {
            scaling,
            ..Self::default()
        }
    }

    /// The outcome while a binding's first `ScaledObject` waits for this.
    #[must_use]
    pub fn awaiting(mut self, waits_for: Option<ScalingWait>) -> Self {
        if let Some(scaled) = &mut self.scaling {
            scaled.waits_for = waits_for;
        }
        self
    }

    /// Whether the queue in the previous status is not the one that serves now.
    pub fn serves_another_queue(&self, observed: &Observed) -> bool {
        let previous = observed.previous.queue.as_ref();
        let desired = observed.desired.as_ref().map(|desired| desired.queue());
        matches!(self.queue, QueueState::Ready(_) | QueueState::Created(_))
            && matches!((previous, desired), (Some(previous), Ok(desired)) if !previous.is_same_queue(&desired))
    }
}

/// Result of a dry run in this reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ProbeOutcome {
    /// No dry run was made.
    #[default]
    NotRun,
    /// The API server admits a pod with the sidecar.
    Admitted,
    /// The pod came back without the sidecar, for this reason. It says nothing about a pod with the sidecar.
    NotInjected(String),
    /// The API server rejects a pod with the sidecar, with this error.
    Rejected(String),
}

/// Dry-run state after a reconcile.
#[derive(Debug, Default)]
pub struct ProbeState {
    /// Result of the last dry run of this reconcile.
    pub outcome: ProbeOutcome,
    /// Time until the next dry run is due.
    pub next_probe_in: Option<Duration>,
}

/// Fields contested by other field managers.
#[derive(Debug, Default)]
pub struct ContentionOutcome {
    /// Events of this reconcile.
    pub field_events: Vec<(ContestedPart, FieldEvent)>,
    /// When to check these fields again.
    pub recheck_after: Option<Duration>,
    /// The change that this reconcile made to the autoscaler handoff annotation.
    pub handoff: Option<HandoffChange>,
}

/// A change of the autoscaler handoff annotation on the target's owner (SO-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffChange {
    Set,
    Remove,
}

impl ContentionOutcome {
    pub fn recheck_within(&mut self, wait: Duration) {
        self.recheck_after = Some(
            self.recheck_after
                .map_or(wait, |previous| previous.min(wait)),
        );
    }
}

/// Workloads that we scaled to zero (QUE-3), and that nothing else scales up. Once the actor may run again, they are
/// applied in full.
#[derive(Debug, Default)]
pub struct StoppedWorkloads {
    /// Kinds of the workloads that this reconcile scaled to zero. Their recorded hashes are cleared, so that a later
    /// apply is not skipped.
    pub kinds: Vec<&'static str>,
}

/// Scaling objects after a reconcile.
#[derive(Debug, Default)]
pub struct ScalingOutcome {
    /// The `ScaledObject` as last observed or written.
    pub scaled_object: Option<Arc<ScaledObjectRecord>>,
    /// Why it does not match the spec.
    pub fault: Option<Fault>,
    /// What a binding's first `ScaledObject` waits for.
    pub waits_for: Option<ScalingWait>,
}

/// What a binding's first `ScaledObject` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScalingWait {
    /// Pods of the target are to have the sidecar (SAFE-20).
    Sidecar(&'static str),
    /// The owner's autoscaler cannot be disabled yet, because that replaces the pods (SO-5).
    Handoff(String),
}

impl ScalingWait {
    /// The reason and the message for condition `ScalingReady`.
    pub fn describe(&self) -> (Reason, &str) {
        match self {
            Self::Sidecar(text) => (Reason::NotProven, text),
            Self::Handoff(text) => (Reason::RolloutWaiting, text),
        }
    }
}

/// Queue state after a reconcile.
#[derive(Debug, Default)]
pub enum QueueState {
    /// Not checked: status keeps what it reported before.
    #[default]
    NotChecked,
    /// Matches the spec as far as known, with the broker's answer if this reconcile queried it.
    Ready(Option<ReadyQueue>),
    /// Created by this reconcile.
    Created(ReadyQueue),
    /// Not answered this time: status keeps what it says about the queue (QUE-10, OPS-22). Check again at the given
    /// time.
    Deferred(Requeue),
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
    pub fn requeue(&self) -> Option<Requeue> {
        match self {
            Self::Deferred(requeue) => Some(*requeue),
            _ => None,
        }
    }
}

/// Rollout state after a reconcile.
#[derive(Debug, Default, PartialEq)]
pub enum RolloutOutcome {
    /// Not checked: the previous status stays.
    #[default]
    NotChecked,
    /// No pod needs replacing.
    NotNeeded,
    /// New pods would get the sidecar, but the target has no pods yet.
    NoPodsYet,
    /// Blocked, or already in progress, for this reason.
    Waiting(Fault),
    /// Replacements do not get the sidecar, or are not created: no further pod is replaced until the spec of the actor
    /// or its target changes, or the user asks for it by `asya.sh/roll-now` (ROLL-5).
    Halted(String),
    /// The last replacement is not ready after its time limit. The rollout continues by itself once it is (SAFE-13).
    Stalled(String),
    /// Another field manager changed the annotation that triggers the rollout, or owns it.
    Conflict(FieldConflict),
    /// Another field manager keeps changing the annotation: the operator no longer writes it until a spec changes
    /// (CONF-6).
    Yielded,
    /// This reconcile requested the replacement of pods.
    Requested(ReplacementMethod),
}

impl RolloutOutcome {
    /// Reported from a conflict until the annotation is written again or the operator stops writing it.
    pub const CONFLICT_MESSAGE: &str = "another field manager owns or changed the annotation that restarts the target's pods; the \
         operator writes it again after a delay (condition Conflict says who)";

    /// Reported from the request to replace pods until none is left to replace.
    pub const IN_PROGRESS_MESSAGE: &str =
        "the target's pods are being replaced by pods with the sidecar";

    pub fn waiting(reason: Reason, message: impl Into<String>, requeue: Requeue) -> Self {
        Self::Waiting(Fault {
            reason,
            message: message.into(),
            requeue,
        })
    }

    /// Pods are being replaced, as an earlier reconcile or another controller has requested.
    pub fn in_progress() -> Self {
        Self::waiting(
            Reason::RolloutInProgress,
            Self::IN_PROGRESS_MESSAGE,
            Requeue::After(PROGRESS_INTERVAL),
        )
    }

    /// No rollout slot is free. The actor is enqueued once one is; `fallback` is the delay in case that is missed.
    pub fn await_slot(fallback: Duration) -> Self {
        Self::waiting(
            Reason::RolloutWaiting,
            AWAITS_SLOT,
            Requeue::After(fallback),
        )
    }
}

/// Requeue delay for the progress of a rollout, which no watch reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The message of an actor that waits for a rollout slot.
pub const AWAITS_SLOT: &str =
    "the maximum number of targets is being rolled out; waiting for one of them to finish";

/// How a pod replacement was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementMethod {
    Annotation,
    Eviction,
}

/// State of our fields in a pod template after a reconcile.
#[derive(Debug, Default, PartialEq)]
pub enum TemplateOutcome {
    #[default]
    NotChecked,
    /// Not desired by the spec.
    NotDesired,
    Unchanged,
    /// Applied by this reconcile.
    Applied(TemplateStatus),
    /// Given up by this reconcile, with the reason if the spec still desires it.
    GivenUp(Option<Fault>),
    /// Not allowed in this template.
    Refused(Fault),
    /// Blocked, or already in progress, for this reason.
    Waiting(Fault),
    /// Changed by another field manager, which may own them.
    Conflict(FieldConflict),
    /// Another field manager keeps changing them: the operator no longer writes them until a spec changes (CONF-6).
    Yielded,
}

impl TemplateOutcome {
    /// Reported from a conflict until our fields are applied again or the operator stops applying them.
    pub const CONFLICT_MESSAGE: &str = "another field manager owns or changed Asya's fields in the target's pod template; the \
         operator writes them again after a delay (condition Conflict says what and by whom)";
}

/// Result of checking the retired queues.
#[derive(Debug, Default)]
pub struct RetiredQueues {
    /// Queues to forget: deleted, or not the actor's any more.
    pub forgettable: Vec<QueueStatus>,
    /// Queues that an earlier process has created: they have the actor's tag.
    pub confirmed: Vec<QueueStatus>,
    /// When to check the remaining queues again.
    pub recheck_after: Option<Duration>,
}
