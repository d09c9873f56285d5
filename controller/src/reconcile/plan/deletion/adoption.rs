//! Pods left behind by a `StatefulSet` that was deleted without them in order to be recreated (FW-22). The operator
//! deletes no pods itself, so if the actor is deleted before they are adopted, another `StatefulSet` adopts them and is
//! deleted with them.

use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{NextPhase, WorkloadRemoval, time_left};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::record::{PodRecord, WorkloadRecord};

/// The steps before the workloads are deleted; `None` if there is nothing to adopt, or adoption is no longer possible.
pub(super) fn plan_adoption(
    observed: &Observed,
    workloads: &[Arc<WorkloadRecord>],
    now: Timestamp,
) -> Option<(Vec<WorkloadRemoval>, NextPhase)> {
    let standalone = observed.standalone()?;
    if standalone.kind != WorkloadKind::StatefulSet
        || matches!(observed.workload, Child::Foreign(_))
    {
        return None;
    }
    let pods = observed.unmanaged_pods.iter();
    let pods = pods.filter(|pod| is_adoptable(&observed.key().name, pod));
    let wait = NextPhase::Wait(Some(time_left(observed, pods, now)?));
    let mut sets = workloads
        .iter()
        .filter(|workload| workload.kind == WorkloadKind::StatefulSet);
    match sets.next() {
        // The next one is created once this one is gone.
        Some(set) if set.metadata.deleting => None,
        Some(_) => Some((Vec::new(), wait)),
        None => {
            let mut object = standalone.workload.applied.object.clone();
            object["spec"]["replicas"] = json!(0);
            let adopt = WorkloadRemoval::Adopt(WorkloadKind::StatefulSet, object);
            Some((vec![adopt], wait))
        }
    }
}

/// Whether a `StatefulSet` of this name adopts the pod: it has such a name, and is not being deleted.
fn is_adoptable(name: &str, pod: &PodRecord) -> bool {
    let ordinal = pod.metadata.key.name.strip_prefix(name);
    let ordinal = ordinal.and_then(|it| it.strip_prefix('-'));
    pod.unmanaged_of == Some(WorkloadKind::StatefulSet)
        && pod.deleted.is_none()
        && ordinal.is_some_and(|it| it.parse::<u32>().is_ok())
}
