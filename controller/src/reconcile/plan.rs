//! What to do about what was observed. Every decision of a pass is here; nothing here acts.

mod binding;
mod child;
pub mod claim;
mod contest;
pub mod deletion;
pub mod drain;
pub mod evict;
pub mod pace;
pub mod probe;
mod replicas;
pub mod restore;
pub mod retired;
pub mod roll;
mod scaling_gate;
mod stop;
pub mod template;
pub mod unbind;
pub mod wake;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::inject::Replicas;
use asya_shared::names::FINALIZER;
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;

use super::conflict::contest::Contest;
use super::desired::{Desired, Standalone};
use super::observe::known::is_same;
use super::observe::{Child, Observed, QueueSeen};
use super::{Fault, Reason, Retry};
use crate::queue::{Serving, Standing};
use crate::record::{ActorRecord, ScaleTarget, WorkloadRecord};
use crate::scaling::plan::{self as scaling, Removal, ScalingPlan, plan_removal, plan_scaling};

use drain::Drain;

pub use child::{Step, is_unchanged, not_owned, plan_child, recorded};

/// What to do in this pass.
#[derive(Debug)]
pub enum Plan {
    /// Write no child and no queue, ask no broker.
    Rest(Rest),
    /// Bring queue and workload to what is wanted.
    Ensure(Ensure),
    /// Bring the queue to what is wanted; another controller makes the workload.
    Bind(Box<Bind>),
    /// Take nothing down yet: whether the queue is empty shows after this time.
    Confirm(Duration),
    /// Take down what we made.
    Delete(deletion::Delete),
}

impl Plan {
    /// What is done about the actor's finalizers before anything else.
    pub fn finalizers(&self) -> Finalizers {
        match self {
            Self::Ensure(plan) => plan.finalizers,
            Self::Bind(plan) => plan.finalizers,
            Self::Rest(_) | Self::Confirm(_) | Self::Delete(_) => Finalizers::Keep,
        }
    }

    /// Whether nothing but its queues stands between the actor and its end.
    pub fn is_the_end(&self) -> bool {
        matches!(
            self,
            Self::Delete(deletion::Delete {
                then: deletion::Then::Finish { .. },
                ..
            })
        )
    }
}

/// About the finalizers of an actor that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizers {
    /// They are as they should be.
    Keep,
    /// Put ours on (FIN-1).
    Add,
    /// Take the garbage collector's off, or it deletes again what is made (QUE-43).
    EndForeground,
}

/// What a look shows to be wrong with an actor that is paused.
#[derive(Debug, Default, PartialEq)]
pub struct Rest {
    /// With its workload.
    pub workload: Option<Fault>,
    /// With what scales that.
    pub scaling: Option<Fault>,
}

/// The parts of a pass over an actor that lives, in the order in which they are done.
#[derive(Debug)]
pub struct Ensure {
    /// About the actor's finalizers, first.
    pub finalizers: Finalizers,
    /// Write no child: this spec has had what it asked for, once (FW-21).
    pub done_once: bool,
    /// About the queue.
    pub queue: QueueStep,
    /// About the `ServiceAccount`: applied before the workload, deleted after it.
    pub service_account: Step,
    /// About the workload.
    pub workload: WorkloadStep,
    /// That replaces its pods although nobody changed the actor: it waits for its turn (SAFE-36).
    pub paced: bool,
    /// Retired queues that go if they are empty.
    pub retired: Vec<QueueStatus>,
    /// About what scales it, once it is there.
    pub scaling: Option<ScalingStep>,
    /// About what somebody has changed of these.
    pub restore: restore::Restore,
    /// A workload of the kind that is no longer wanted goes once the wanted one is there (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
    /// Workloads that get no pods, because these would take another actor's messages (QUE-3).
    pub stopped: Vec<Arc<WorkloadRecord>>,
}

/// The parts of a pass over a binding that lives, in the order in which they are done.
#[derive(Debug)]
pub struct Bind {
    /// About the actor's finalizers, first.
    pub finalizers: Finalizers,
    /// Write nothing to target and children: this spec has had what it asked for, once (FW-21).
    pub done_once: bool,
    /// About the queue.
    pub queue: QueueStep,
    /// About what scales the target; `None` as long as nobody knows what that is.
    pub scaling: Option<ScalingStep>,
    /// About our `ScaledObject`, where somebody changes it; `None` as long as nobody knows what is scaled.
    pub contest: Option<Contest>,
    /// About who else sets the number of its pods.
    pub replicas: Option<Contest>,
    /// What nobody scales any more, and nobody would wake.
    pub wake: Option<wake::Waking>,
    /// About the target's pod template.
    pub template: template::Templating,
    /// About what tells the target's owner that the queue scales it; `None`: nothing does, or not now (SO-5).
    pub claim: Option<claim::Claiming>,
    /// A workload that is bound for the first time: it is to say by whom (BIND-47).
    pub mark: Option<ObjectRef>,
    /// About a dry run of a pod with the sidecar.
    pub probe: probe::Probing,
    /// About pods that ran before; `None` while nobody can tell.
    pub roll: Option<roll::Rolling>,
    /// Retired queues that go if they are empty.
    pub retired: Vec<QueueStatus>,
}

/// At least so many pods, where there are none (SO-6).
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    /// What is scaled, once, by its `/scale`.
    pub object: ObjectRef,
    /// The number of its pods.
    pub replicas: i32,
}

/// About the queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueStep {
    /// It is as wanted; with what the broker said of it in this pass.
    Keep(Option<Serving>),
    /// It is not known for now (QUE-10, OPS-22): look again then.
    Await(Retry),
    /// It is somebody's business, not ours (QUE-12).
    Unmanaged,
    /// It is not the one that the pods know, which are left alone (FW-21).
    Leave,
    /// Create it.
    Create,
    /// Bring it to what is wanted, with its messages.
    Update,
    /// It cannot be had now.
    Refuse(Fault),
}

/// About the workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadStep {
    /// It is as wanted, or not to be touched.
    Keep,
    /// There is none: apply it, once the queue is there (QUE-4).
    Create,
    /// Apply it.
    Update {
        /// First make the former operator's fields ours: this is where they stand (WRK-7).
        take_over: Option<usize>,
        /// First give the number of replicas an owner of its own (WRK-3).
        hand_over: bool,
        /// First make the fields ours that kubectl or Helm wrote (FW-22).
        reclaim: bool,
    },
    /// It cannot be had now.
    Refuse(Fault),
}

/// About what scales the workload.
#[derive(Debug, PartialEq)]
pub enum ScalingStep {
    /// Scaling is on.
    Wanted(ScalingPlan),
    /// Scaling is off.
    Unwanted(Removal),
    /// Scaling is on and cannot be had (SO-4).
    Refused(Removal, Fault),
}

impl WorkloadStep {
    /// What keeps the workload from being what it should be.
    fn fault(&self) -> Option<Fault> {
        match self {
            Self::Refuse(fault) => Some(fault.clone()),
            Self::Keep | Self::Create | Self::Update { .. } => None,
        }
    }
}

impl ScalingStep {
    /// What keeps the workload from being scaled.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Wanted(plan) => plan.fault.clone(),
            Self::Unwanted(_) => None,
            Self::Refused(_, fault) => Some(fault.clone()),
        }
    }

    /// What the first `ScaledObject` of a binding waits for.
    pub fn waits_for(&self) -> Option<&'static str> {
        match self {
            Self::Wanted(plan) => plan.waits_for,
            Self::Unwanted(_) | Self::Refused(..) => None,
        }
    }
}

/// Decides what to do.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    match &observed.drain {
        _ if !observed.actor.metadata.deleting => {}
        Some(Drain::Works(_)) => {}
        Some(Drain::Confirms(wait)) => return Plan::Confirm(*wait),
        Some(Drain::Empty | Drain::Abandoned { .. }) | None => {
            return Plan::Delete(deletion::plan_deletion(observed, now));
        }
    }
    if observed.binding.is_some() {
        return binding::plan(observed, now);
    }
    let mut workload = plan_workload(observed);
    // What is gone is made again while messages wait for it.
    let made_again = observed.actor.metadata.deleting && workload == WorkloadStep::Create;
    let done_once = is_done_once(&observed.actor, &observed.previous) && !made_again;
    let stop = stop::plan_stop(observed, now);
    let (unscaled, stopped) = stop.map_or_else(Default::default, |stop| {
        (Some(ScalingStep::Unwanted(stop.scaling)), stop.workloads)
    });
    let mut scaling = plan_scaling_step(observed, &workload, now).or(unscaled);
    if observed.actor.annotations.paused {
        return Plan::Rest(Rest {
            workload: workload.fault(),
            scaling: scaling.as_ref().and_then(ScalingStep::fault),
        });
    }
    let restore = restore::plan(observed, &mut workload, scaling.as_mut(), now);
    Plan::Ensure(Ensure {
        finalizers: plan_finalizers(observed),
        done_once,
        queue: plan_queue(observed),
        service_account: plan_service_account(observed),
        scaling,
        restore,
        stopped,
        paced: pace::is_of_installation(observed, &workload),
        workload,
        retired: retired::looks(observed),
        former: observed
            .former
            .clone()
            .filter(|former| observed.desired.is_ok() && !former.metadata.deleting),
    })
}

/// FW-21: once the actor was ready with this spec, what was made for it is left alone, whatever becomes of it, and
/// whatever the installation would make today. The deletion raises the generation without changing the spec, and what
/// is changed in an actor that is going concerns its end.
pub(super) fn is_done_once(actor: &ActorRecord, previous: &AsyncActorStatus) -> bool {
    let ready = previous.ready_generation;
    let is_it = |ready: i64| ready == actor.generation || actor.metadata.deleting;
    actor.annotations.once && ready.is_some_and(is_it)
}

fn plan_finalizers(observed: &Observed) -> Finalizers {
    match observed.actor.metadata.deleting {
        false if !has_finalizer(observed) => Finalizers::Add,
        true if has(observed, FOREGROUND) => Finalizers::EndForeground,
        _ => Finalizers::Keep,
    }
}

pub(super) fn has_finalizer(observed: &Observed) -> bool {
    has(observed, FINALIZER)
}

/// The garbage collector's: it deletes what we made as long as this is there.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

pub(super) fn has(observed: &Observed, finalizer: &str) -> bool {
    let mut all = observed.actor.finalizers.iter();
    all.any(|it| **it == *finalizer)
}

fn plan_queue(observed: &Observed) -> QueueStep {
    let Ok(desired) = &observed.desired else {
        return QueueStep::Keep(None);
    };
    if is_done_once(&observed.actor, &observed.previous) && !knows_queue(observed, desired) {
        return QueueStep::Leave;
    }
    let queue = &desired.names.queue;
    let creates = desired.transport.queues().auto_create;
    match &observed.queue {
        QueueSeen::NotAsked => QueueStep::Unmanaged,
        QueueSeen::Unanswered(retry) => QueueStep::Await(*retry),
        QueueSeen::Unknown(error) => QueueStep::Refuse(error.fault()),
        QueueSeen::Standing(Standing::Absent) if creates => QueueStep::Create,
        QueueSeen::Standing(Standing::Absent) => QueueStep::Refuse(Fault {
            reason: Reason::QueueMissing,
            message: format!(
                "queue {queue} does not exist and autoCreate is false; create it at the broker"
            ),
            retry: Retry::Slowly,
        }),
        QueueSeen::Standing(Standing::Drifted | Standing::Unmarked) if creates => QueueStep::Update,
        QueueSeen::Standing(Standing::Serves(serving)) => QueueStep::Keep(Some(serving.clone())),
        QueueSeen::Verified | QueueSeen::Standing(Standing::Drifted | Standing::Unmarked) => {
            QueueStep::Keep(None)
        }
        QueueSeen::Standing(Standing::Differs { wanted, found }) => QueueStep::Refuse(Fault {
            reason: Reason::QueueMismatch,
            message: format!(
                "queue {queue} has {found}, wanted is {wanted}; {}",
                desired.transport.broker().way_out_of_mismatch()
            ),
            retry: Retry::Slowly,
        }),
    }
}

/// Whether the pods that there are take their messages from the queue that would be wanted today.
fn knows_queue(observed: &Observed, desired: &Desired) -> bool {
    let before = observed.previous.queue.as_ref();
    before.is_none_or(|before| is_same(before, &desired.queue()))
}

fn plan_workload(observed: &Observed) -> WorkloadStep {
    let Some(own) = observed.standalone() else {
        return WorkloadStep::Keep;
    };
    if let (Child::Foreign(account), Some(_)) = (&observed.service_account, &own.service_account) {
        return WorkloadStep::Refuse(not_owned("ServiceAccount", &account.metadata));
    }
    plan_found(observed, &observed.workload, own)
}

/// Decides about the object under the workload's name.
pub(super) fn plan_found(
    observed: &Observed,
    found: &Child<WorkloadRecord>,
    own: &Standalone,
) -> WorkloadStep {
    match found {
        Child::Absent => WorkloadStep::Create,
        Child::Foreign(workload) => {
            WorkloadStep::Refuse(not_owned(workload.kind.name(), &workload.metadata))
        }
        // Its end is an event, and then it is made anew.
        Child::Ours(workload) if workload.metadata.deleting => WorkloadStep::Keep,
        Child::Ours(workload) if is_as_wanted(observed, workload, own) => WorkloadStep::Keep,
        Child::Ours(workload) => update(observed, workload, own),
    }
}

fn plan_service_account(observed: &Observed) -> Step {
    let Some(own) = observed.standalone() else {
        return Step::Keep;
    };
    let wanted = own.service_account.as_ref();
    let inventory = &observed.previous.inventory;
    match plan_child(&observed.service_account, wanted, inventory) {
        // Their tokens are renewed for as long as they run.
        Step::Delete(_) if has_old_pods(observed, own) => Step::Wait,
        step => step,
    }
}

fn has_old_pods(observed: &Observed, own: &Standalone) -> bool {
    let current = Some(&*own.workload.template_hash);
    let mut pods = observed.pods.iter();
    pods.any(|pod| !pod.finished && pod.template_hash.as_deref() != current)
}

fn plan_scaling_step(
    observed: &Observed,
    workload: &WorkloadStep,
    now: Timestamp,
) -> Option<ScalingStep> {
    let (own, seen) = (observed.standalone()?, &observed.scaling);
    let Some(wanted) = &own.scaling else {
        let removal = plan_removal(&seen.scaled_object, &seen.trigger_authentication, now);
        return Some(ScalingStep::Unwanted(removal));
    };
    let name = &*observed.key().name;
    Some(ScalingStep::Wanted(plan_scaling(&scaling::Facts {
        actor: name,
        wanted: wanted.as_ref(),
        installed: seen.installed,
        target: &ScaleTarget::workload(own.kind, name),
        target_exists: *workload == WorkloadStep::Create
            || matches!(observed.workload, Child::Ours(_)),
        scaled_object: &seen.scaled_object,
        trigger_authentication: &seen.trigger_authentication,
        hpas: &seen.hpas,
        scaled_objects: &seen.scaled_objects,
        inventory: &observed.previous.inventory,
    })))
}

fn update(observed: &Observed, workload: &WorkloadRecord, own: &Standalone) -> WorkloadStep {
    let take_over = workload.last.former;
    let owned = workload.owns_replicas || take_over.is_some();
    let enforced = matches!(own.workload.replicas, Replicas::Enforced(_));
    WorkloadStep::Update {
        take_over,
        hand_over: owned && !enforced,
        reclaim: reclaims(observed, workload),
    }
}

/// FW-22: on request, and once for each workload.
fn reclaims(observed: &Observed, workload: &WorkloadRecord) -> bool {
    observed.actor.annotations.reclaim_fields && workload.reclaimable
}

/// Whether the workload is as it was last applied. Its number of pods has an owner of its own.
fn is_as_wanted(observed: &Observed, workload: &WorkloadRecord, own: &Standalone) -> bool {
    let (kind, wanted) = (workload.kind.name(), &own.workload);
    let enforced = matches!(wanted.replicas, Replicas::Enforced(_));
    let (metadata, last) = (&workload.metadata, &workload.last);
    let inventory = &observed.previous.inventory;
    (workload.owns_replicas || !enforced)
        && !reclaims(observed, workload)
        && is_unchanged(kind, metadata, last, &wanted.kept.hash, inventory)
}

#[cfg(test)]
mod tests;
