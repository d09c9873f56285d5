//! Whether what somebody changed on objects of ours is restored now (WRK-8).

use k8s_openapi::jiff::Timestamp;

use super::steps::{ScalingStep, WorkloadStep};
use super::{Step, contest, recorded};
use crate::reconcile::contention::Part;
use crate::reconcile::contention::restoring::{self, Restoring};
use crate::reconcile::model::observed::Observed;

/// What is restored in this pass, or left for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// About the workload; `None`: it is as it was applied, or something else is wanted of it.
    pub workload: Option<Restoring>,
    /// About our `ScaledObject`.
    pub scaled_object: Option<Restoring>,
}

/// Decides about them, and keeps the steps from restoring what is left for now.
pub(super) fn plan(
    observed: &Observed,
    workload: &mut WorkloadStep,
    scaling: Option<&mut ScalingStep>,
    now: Timestamp,
) -> Restore {
    let entries = &observed.previous.conflicts;
    let mut plan = Restore::default();
    if let Some(uid) = changed_workload(observed, workload) {
        let what = restoring::decide(entries, (uid, Part::Workload), now);
        if what != Restoring::Now {
            *workload = WorkloadStep::Keep;
        }
        plan.workload = Some(what);
    }
    let found = observed.scaling.scaled_object.ours();
    if let (Some(ScalingStep::Wanted(step)), Some(found)) = (scaling, found)
        && step.scaled_object == (Step::Apply { take_over: None })
        && contest::is_written(observed)
    {
        let its = (&*found.metadata.uid, Part::ScaledObject);
        let what = restoring::decide(entries, its, now);
        if what != Restoring::Now {
            step.scaled_object = Step::Keep;
        }
        plan.scaled_object = Some(what);
    }
    plan
}

/// The uid of the workload, if it was applied as it is wanted today and is not so any more.
fn changed_workload<'a>(observed: &'a Observed, step: &WorkloadStep) -> Option<&'a str> {
    let plain = WorkloadStep::Update {
        take_over: None,
        hand_over: false,
        reclaim: false,
    };
    let (own, found) = (observed.standalone()?, observed.workload.ours()?);
    let (kind, name) = (found.kind.name(), &found.metadata.key.name);
    let applied = recorded(&observed.previous.inventory, kind, name)?;
    let is_it = applied.hash.as_deref() == Some(&*own.workload.kept.hash)
        && applied.uid.as_deref() == Some(&*found.metadata.uid)
        && applied.fingerprint.is_some();
    (*step == plain && is_it).then_some(&*found.metadata.uid)
}
