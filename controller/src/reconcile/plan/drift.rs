//! Decides which drift of our own objects to restore now (WRK-8).

use std::time::Duration;

use asya_shared::api::{InventoryEntry, WorkloadKind};
use asya_shared::inject::Replicas;
use asya_shared::names::manager;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use serde_json::Value;

use super::steps::{ScalingRestriction, ScalingStep, WorkloadStep, WorkloadUpdate};
use super::{ChildStep, recorded, scaled_object_contention};
use crate::reconcile::contention::ContestedPart;
use crate::reconcile::contention::drift_restore::{self, RestoreTiming, RestoredDrift};
use crate::reconcile::model::observed::Observed;
use crate::record::{AppliedRecord, Key, ScaledObject, ScaledObjectRecord};

/// When the drift of each object is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriftPlan {
    /// The workload; `None` if it has not drifted, or the desired state has changed.
    pub workload: Option<RestoreTiming>,
    /// Our `ScaledObject`; `None` under the same conditions.
    pub scaled_object: Option<RestoreTiming>,
}

/// Drift to restore. Its cause has to be read first, because the restore erases it from `managedFields`.
#[derive(Debug)]
pub struct Drift {
    pub part: ContestedPart,
    pub key: Key,
    pub uid: String,
    pub resource: ApiResource,
    /// Field manager of our applies.
    pub manager: &'static str,
    /// The desired object; `None` if only its replicas have drifted.
    pub desired: Option<Value>,
}

impl DriftPlan {
    /// The step for the workload, which is kept as it is while its restore is postponed.
    pub(super) fn restrict_workload(&self, step: WorkloadStep) -> WorkloadStep {
        if is_postponed(self.workload) {
            WorkloadStep::Keep
        } else {
            step
        }
    }

    /// The same for the `ScaledObject`.
    pub(super) fn scaling_restriction(&self) -> ScalingRestriction {
        ScalingRestriction {
            keep_scaled_object: is_postponed(self.scaled_object),
            ..ScalingRestriction::default()
        }
    }

    /// Time until postponed drift is restored.
    pub fn recheck_after(&self) -> Option<Duration> {
        let all = [self.workload, self.scaled_object].into_iter().flatten();
        let delays = all.filter_map(|timing| match timing {
            RestoreTiming::In(wait) => Some(wait),
            RestoreTiming::Now => None,
        });
        delays.min()
    }

    /// The drift to restore now.
    pub fn drifts(&self, observed: &Observed) -> Vec<Drift> {
        let is_due = |timing| timing == Some(RestoreTiming::Now);
        let workload = is_due(self.workload).then(|| workload_drift(observed));
        let scaled_object = is_due(self.scaled_object).then(|| scaled_object_drift(observed));
        [workload, scaled_object]
            .into_iter()
            .flatten()
            .flatten()
            .collect()
    }
}

fn is_postponed(timing: Option<RestoreTiming>) -> bool {
    matches!(timing, Some(RestoreTiming::In(_)))
}

fn workload_drift(observed: &Observed) -> Option<Drift> {
    let standalone = observed.standalone()?;
    let existing = observed.workload.ours()?;
    let enforced = matches!(standalone.workload.replicas, Replicas::Enforced(_));
    let only_replicas = enforced && !existing.owns_replicas;
    Some(Drift {
        part: ContestedPart::Workload,
        key: observed.key().clone(),
        uid: existing.metadata.uid.to_string(),
        resource: match existing.kind {
            WorkloadKind::Deployment => ApiResource::erase::<Deployment>(&()),
            WorkloadKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        },
        manager: manager::WORKLOAD,
        desired: (!only_replicas).then(|| standalone.workload.applied.object.clone()),
    })
}

fn scaled_object_drift(observed: &Observed) -> Option<Drift> {
    let existing = observed.scaling.scaled_object.ours()?;
    let desired = observed.scaling_objects()?.ok()?;
    Some(Drift {
        part: ContestedPart::ScaledObject,
        key: observed.key().clone(),
        uid: existing.metadata.uid.to_string(),
        resource: ApiResource::erase::<ScaledObject>(&()),
        manager: ScaledObjectRecord::MANAGER,
        desired: Some(desired.scaled_object.object.clone()),
    })
}

/// Keeps the drift whose object this reconcile has applied, and so restored.
pub fn only_applied(drifts: Vec<RestoredDrift>, applied: &[InventoryEntry]) -> Vec<RestoredDrift> {
    let is_applied = |drift: &RestoredDrift| {
        applied
            .iter()
            .any(|entry| entry.uid.as_ref() == Some(&drift.uid))
    };
    drifts.into_iter().filter(is_applied).collect()
}

/// Decides when to restore the objects that these steps would apply.
pub(super) fn plan_drift(
    observed: &Observed,
    workload: &WorkloadStep,
    scaling: Option<&ScalingStep>,
    now: Timestamp,
) -> DriftPlan {
    let entries = &observed.previous.conflicts;
    let timing = |uid: &str, part| drift_restore::decide(entries, uid, part, now);
    DriftPlan {
        workload: drifted_workload(observed, workload)
            .map(|uid| timing(uid, ContestedPart::Workload)),
        scaled_object: drifted_scaled_object(observed, scaling)
            .map(|uid| timing(uid, ContestedPart::ScaledObject)),
    }
}

/// UID of the workload if it was applied with the current desired content and has drifted since.
fn drifted_workload<'a>(observed: &'a Observed, step: &WorkloadStep) -> Option<&'a str> {
    let update_only = WorkloadStep::Update(WorkloadUpdate::default());
    let standalone = observed.standalone()?;
    let existing = observed.workload.ours()?;
    let kind = existing.kind.name();
    let name = &existing.metadata.key.name;
    let applied = recorded(&observed.previous.inventory, kind, name)?;
    let is_current = applied.hash.as_deref() == Some(&*standalone.workload.applied.hash)
        && applied.uid.as_deref() == Some(&*existing.metadata.uid)
        && applied.fingerprint.is_some();
    (*step == update_only && is_current).then_some(&*existing.metadata.uid)
}

/// UID of our `ScaledObject`, under the same conditions.
fn drifted_scaled_object<'a>(
    observed: &'a Observed,
    step: Option<&ScalingStep>,
) -> Option<&'a str> {
    let existing = observed.scaling.scaled_object.ours()?;
    let Some(ScalingStep::Enabled(step)) = step else {
        return None;
    };
    let is_drifted = step.scaled_object == (ChildStep::Apply { take_over: None })
        && scaled_object_contention::is_written(observed);
    is_drifted.then_some(&*existing.metadata.uid)
}
