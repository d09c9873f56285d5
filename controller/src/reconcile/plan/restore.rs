//! Whether drift of our objects is restored now (WRK-8).

use std::time::Duration;

use asya_shared::api::{InventoryEntry, WorkloadKind};
use asya_shared::inject::Replicas;
use asya_shared::names::manager;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use serde_json::Value;

use super::steps::{ScalingStep, WorkloadStep};
use super::{ChildStep, contest, recorded};
use crate::reconcile::contention::Part;
use crate::reconcile::contention::restoring::{self, Restored, Restoring};
use crate::reconcile::model::observed::Observed;
use crate::record::{AppliedRecord, Key, ScaledObject, ScaledObjectRecord};

/// Which drift is restored in this reconcile, and which is left for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// The workload; `None`: it has not drifted, or the desired state has changed.
    pub workload: Option<Restoring>,
    /// Our `ScaledObject`, likewise.
    pub scaled_object: Option<Restoring>,
}

/// Drift that is about to be restored. Who caused it has to be found out before, because nothing shows it afterwards.
#[derive(Debug)]
pub struct Drift {
    pub part: Part,
    pub key: Key,
    pub uid: String,
    pub resource: ApiResource,
    /// Field manager of our applies.
    pub manager: &'static str,
    /// The desired object; `None`: only its number of replicas has drifted.
    pub wanted: Option<Value>,
}

impl Restore {
    /// When to restore the drift that is left for now.
    pub fn again(&self) -> Option<Duration> {
        let all = [self.workload, self.scaled_object].into_iter().flatten();
        let waits = all.filter_map(|it| match it {
            Restoring::In(wait) => Some(wait),
            Restoring::Now => None,
        });
        waits.min()
    }

    /// The drift that is restored now.
    pub fn drifts(&self, observed: &Observed) -> Vec<Drift> {
        let now = |it| it == Some(Restoring::Now);
        let workload = now(self.workload).then(|| workload_drift(observed));
        let scaled = now(self.scaled_object).then(|| scaled_object_drift(observed));
        [workload, scaled].into_iter().flatten().flatten().collect()
    }
}

fn workload_drift(observed: &Observed) -> Option<Drift> {
    let (own, found) = (observed.standalone()?, observed.workload.ours()?);
    let enforced = matches!(own.workload.replicas, Replicas::Enforced(_));
    let only_replicas = enforced && !found.owns_replicas;
    Some(Drift {
        part: Part::Workload,
        key: observed.key().clone(),
        uid: found.metadata.uid.to_string(),
        resource: match found.kind {
            WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
            WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        },
        manager: manager::WORKLOAD,
        wanted: (!only_replicas).then(|| own.workload.kept.object.clone()),
    })
}

fn scaled_object_drift(observed: &Observed) -> Option<Drift> {
    let found = observed.scaling.scaled_object.ours()?;
    let wanted = observed.scaling_objects()?.ok()?;
    Some(Drift {
        part: Part::ScaledObject,
        key: observed.key().clone(),
        uid: found.metadata.uid.to_string(),
        resource: ApiResource::erase::<ScaledObject>(&()),
        manager: ScaledObjectRecord::MANAGER,
        wanted: Some(wanted.scaled_object.object.clone()),
    })
}

/// Those of `found` that a reconcile has restored, because it applied the object.
pub fn restored(found: Vec<Restored>, applied: &[InventoryEntry]) -> Vec<Restored> {
    let is_applied = |it: &Restored| {
        applied
            .iter()
            .any(|entry| entry.uid.as_ref() == Some(&it.uid))
    };
    found.into_iter().filter(is_applied).collect()
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
