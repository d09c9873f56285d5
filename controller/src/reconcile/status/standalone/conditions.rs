//! The conditions of a standalone actor.

use crate::condition::ConditionValue;
use crate::reconcile::model::condition_types::{SCALING_READY, TRANSPORT_READY, WORKLOAD_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::StandaloneOutcome;
use crate::reconcile::status::conditions::{ConditionChange, ConditionReport, ReadyRule};
use crate::scaling::ready::ScalingReady;

/// All conditions but `TransportReady`.
pub(super) fn standalone_conditions(
    observed: &Observed,
    outcome: &StandaloneOutcome,
    workload: Option<ConditionValue>,
    scaling: Option<ScalingReady>,
    conflict: ConditionChange,
    expects_scaling: bool,
) -> ConditionReport {
    let workload = workload.map(|value| ConditionChange::Set(WORKLOAD_READY, value));
    let scaling = match scaling {
        Some(it) => Some(ConditionChange::Set(SCALING_READY, it.condition)),
        // Scaling is off, so there is nothing to report (KEDA-8).
        None if observed.desired.is_ok() || outcome.stopped.is_some() => {
            Some(ConditionChange::Remove(SCALING_READY))
        }
        None => None,
    };
    ConditionReport {
        changes: workload.into_iter().chain(scaling).collect(),
        ready: ReadyRule {
            needed: &[TRANSPORT_READY, WORKLOAD_READY],
            optional: &[SCALING_READY],
            expects_scaling,
            is_last: false,
        },
        conflict,
    }
}
