//! Plans a reconcile from the observed state. All decisions are made here, without side effects.

pub mod autoscaler_handoff;
mod binding;
pub mod child;
pub mod contested_fields;
mod controller_rollout;
pub mod decision;
pub mod deletion;
pub mod drift;
pub mod evict;
pub mod finalizers;
pub mod probe;
pub mod queue;
pub mod queue_removal;
pub mod replicas;
pub mod retired;
pub mod rollout;
pub mod rollout_slot;
pub mod scale_from_zero;
pub mod scaled_object_contention;
pub mod scaling;
pub mod scaling_children;
mod scaling_start;
mod service_account;
mod standalone;
pub mod step_conditions;
pub mod steps;
mod stop;
pub mod template;
pub mod unbind;
pub mod workload;

use k8s_openapi::jiff::Timestamp;

use super::model::drain::DrainState;
use super::model::observed::Observed;
use crate::reconcile::plan::decision::Plan;

pub use child::{ChildStep, is_unchanged, not_owned, plan_child, recorded};

/// Plans a reconcile of one actor.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    match &observed.drain {
        _ if !observed.actor.metadata.deleting => {}
        Some(DrainState::Waiting(_)) => {}
        Some(DrainState::Confirming(wait)) => return Plan::AwaitEmpty(*wait),
        Some(DrainState::Empty | DrainState::KeepQueues(_)) | None => {
            return Plan::Delete(Box::new(deletion::plan_deletion(observed, now)));
        }
    }
    if observed.binding.is_some() {
        binding::plan_binding(observed, now)
    } else {
        standalone::plan_standalone(observed, now)
    }
}

#[cfg(test)]
mod tests;
