//! Plans a binding: an actor whose workload another controller manages.

mod scaling;
mod target;

use asya_shared::api::BindingStrategy;
use asya_shared::config::SecretKeyRef;
use k8s_openapi::jiff::Timestamp;
use scaling::plan_scaling_step;
use target::plan_target_steps;

use super::autoscaler_handoff;
use super::contested_fields::ContestedFields;
use super::decision::{ActivePlan, BindingPlan, CommonPlan, ModePlan, Plan, TargetSteps};
use super::finalizers::plan_finalizers;
use super::probe::plan_probe;
use super::queue::plan_queue;
use super::retired::{self, RetiredCheck};
use super::rollout::params::{PlannedRollout, RolloutParams};
use super::rollout::plan_rollout;
use super::scaling_children::ScalingChildren;
use super::steps::ScalingStep;
use crate::reconcile::model::observed::{Observed, is_reconcile_once_done};
use crate::reconcile::model::outcome::{BindingOutcome, CommonOutcome};
use crate::reconcile::model::target_pods::actor_hash;

/// Plans an active binding.
pub(super) fn plan_binding(observed: &Observed, now: Timestamp) -> Plan {
    let target_is_known = target_is_known(observed);
    let scaling = plan_scaling_step(observed, now);
    if observed.actor.annotations.paused {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        let outcome = BindingOutcome::initial(observed, fault);
        return Plan::Paused(Box::new(outcome.into()));
    }
    let leaves_objects_alone = is_reconcile_once_done(&observed.actor, &observed.previous);
    let history = observed.contention_history();
    let history = history.as_ref();
    let rollout = plan_rollout(observed, history, now);
    let probe = plan_probe(observed);
    let (target, scaling, rollout, retired) = if leaves_objects_alone {
        let rollout = rollout.filter(|decision| !decision.replaces_pods());
        let target = TargetSteps::default();
        (target, scaling, rollout, RetiredCheck::default())
    } else {
        let (target, scaling) =
            plan_target_steps(observed, history, scaling, rollout.as_ref(), &probe, now);
        (target, scaling, rollout, retired::plan_check(observed))
    };
    let idle_slot = autoscaler_handoff::slot_change(observed, target.handoff.as_ref(), now);
    let rollout = rollout.map(|decision| PlannedRollout {
        params: RolloutParams::new(observed, &decision, idle_slot, now),
        decision,
    });
    let fault = scaling.as_ref().and_then(ScalingStep::fault);
    let waits_for = scaling.as_ref().and_then(ScalingStep::waits_for).cloned();
    Plan::Active(Box::new(ActivePlan {
        finalizers: plan_finalizers(observed),
        frees_slot: rollout.is_none() && target_is_known,
        initial: CommonOutcome::initial(observed, fault).awaiting(waits_for),
        common: CommonPlan {
            queue: plan_queue(observed),
            leaves_objects_alone,
            scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
            scaling,
        },
        mode: ModePlan::Binding(Box::new(BindingPlan {
            contested: ContestedFields::new(observed, target.scaled_object_contention.as_ref()),
            target,
            secrets_to_find: secrets_to_find(observed),
            probe,
            rollout,
        })),
        retired,
    }))
}

/// The Secrets without which pods with the sidecar could not start, unless pods are known to start with it (SAFE-42).
fn secrets_to_find(observed: &Observed) -> Vec<SecretKeyRef> {
    let Some(bound) = observed.desired_binding() else {
        return Vec::new();
    };
    let hash = actor_hash(bound.injected_hash.as_deref());
    let is_verified = match bound.strategy {
        BindingStrategy::Template => {
            let template = observed.previous.template.as_ref();
            template.is_some_and(|template| actor_hash(Some(&template.hash)) == hash)
        }
        BindingStrategy::Pod => observed.is_injection_verified(),
    };
    if is_verified {
        Vec::new()
    } else {
        bound.secrets.clone()
    }
}

/// Whether the target was resolved, or is not needed. If so, no planned rollout means that none is in progress.
fn target_is_known(observed: &Observed) -> bool {
    observed.injection().is_some() || observed.desired.is_err()
}

#[cfg(test)]
mod tests;
