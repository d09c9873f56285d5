//! Whether drift of our objects is restored now (WRK-8).

use k8s_openapi::jiff::Timestamp;

use super::steps::{ScalingStep, WorkloadStep};
use super::{ChildStep, contest, recorded};
use crate::reconcile::contention::Part;
use crate::reconcile::contention::restoring::{self, Restoring};
use crate::reconcile::model::observed::Observed;

/// Which drift is restored in this reconcile, and which is left for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// The workload; `None`: it has not drifted, or the desired state has changed.
    pub workload: Option<Restoring>,
    /// Our `ScaledObject`, likewise.
    pub scaled_object: Option<Restoring>,
}

/// Decides, and drops from the steps what is left for now.
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
        && step.scaled_object == (ChildStep::Apply { take_over: None })
        && contest::is_written(observed)
    {
        let its = (&*found.metadata.uid, Part::ScaledObject);
        let what = restoring::decide(entries, its, now);
        if what != Restoring::Now {
            step.scaled_object = ChildStep::Keep;
        }
        plan.scaled_object = Some(what);
    }
    plan
}

/// UID of the workload, if it was applied in its current desired form and has drifted since.
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
