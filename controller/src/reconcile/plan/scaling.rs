//! Plans an actor's `ScaledObject` and `TriggerAuthentication`.

use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::scaling::{ScalingObjects, TriggerError};
use k8s_openapi::jiff::Timestamp;

use super::{ChildStep, not_owned, plan_child};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::outcome::ScalingWait;
use crate::record::{
    AutoscalerTarget, ChildRecord, HpaRecord, ScaledObjectRecord, TriggerAuthentication,
};
use crate::scaling::autoscalers::{
    Autoscalers, CompetingAutoscaler, finalizer_deadline, is_keda_hpa_of,
};

/// Inputs to [`plan_scaling`].
pub struct ScalingPlanInputs<'a> {
    /// Name of the actor and of its `ScaledObject`.
    pub actor: &'a str,
    /// The desired objects, or why no trigger can be built for the queue.
    pub desired: Result<&'a ScalingObjects, &'a TriggerError>,
    /// Whether KEDA's CRDs are installed.
    pub installed: bool,
    /// The object to scale.
    pub target: &'a AutoscalerTarget,
    /// Whether the target exists, and is ours or bound.
    pub target_exists: bool,
    /// The object that has the `ScaledObject`'s name.
    pub scaled_object: &'a Child<ScaledObjectRecord>,
    /// The object that has the `TriggerAuthentication`'s name.
    pub trigger_authentication: &'a Child<ChildRecord<TriggerAuthentication>>,
    /// All HPAs that are relevant to the actor.
    pub hpas: &'a [Arc<HpaRecord>],
    /// All `ScaledObject`s that are relevant to the actor.
    pub scaled_objects: &'a [Arc<ScaledObjectRecord>],
    /// The objects as last applied, from status.
    pub inventory: &'a [InventoryEntry],
}

/// The steps for KEDA's objects. They are applied in this order, after the transport's `ConfigMap`, and deleted in
/// reverse.
#[derive(Debug, PartialEq)]
pub struct ScalingPlan {
    pub trigger_authentication: ChildStep,
    pub scaled_object: ChildStep,
    /// Why the target cannot be scaled as desired.
    pub fault: Option<Fault>,
    /// What a binding's first `ScaledObject` waits for.
    pub waits_for: Option<ScalingWait>,
}

/// The steps when scaling is off or the actor is being deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingTeardown {
    pub scaled_object: ChildStep,
    pub trigger_authentication: ChildStep,
    /// Whether the workload may be deleted: KEDA no longer scales it, or the deadline has passed.
    pub completed: bool,
    /// When to stop waiting for KEDA.
    pub deadline: Option<Timestamp>,
}

impl ScalingPlan {
    /// Checks whether to apply the objects now; `config_map` is the fault of an earlier step that keeps KEDA from
    /// logging in.
    ///
    /// # Errors
    /// What to report instead; `None` while there is nothing to scale yet.
    pub fn may_apply(
        &self,
        config_map: Option<Fault>,
        target_exists: bool,
    ) -> Result<(), Option<Fault>> {
        match self.fault.clone().or(config_map) {
            Some(fault) => Err(Some(fault)),
            None if target_exists => Ok(()),
            None => Err(None),
        }
    }
}

/// Plans KEDA's objects while scaling is on.
pub fn plan_scaling(inputs: &ScalingPlanInputs<'_>) -> ScalingPlan {
    let refuse = |fault| ScalingPlan {
        trigger_authentication: ChildStep::Keep,
        scaled_object: ChildStep::Keep,
        fault: Some(fault),
        waits_for: None,
    };
    if !inputs.installed {
        return refuse(not_installed());
    }
    if let Some(fault) = foreign_child(inputs).or_else(|| competing_autoscaler(inputs)) {
        return refuse(fault);
    }
    // The HPA of a deleted `ScaledObject` would compete with that of a new one.
    let awaits_previous_hpa = matches!(inputs.scaled_object, Child::NotFound)
        && (inputs.hpas.iter()).any(|hpa| is_keda_hpa_of(hpa, inputs.actor));
    let objects = match inputs.desired {
        Ok(objects) => objects,
        Err(error) => {
            let text = error.to_string();
            return refuse(Fault::until_change(Reason::QueueURLUnknown, text));
        }
    };
    if !inputs.target_exists {
        return ScalingPlan {
            trigger_authentication: ChildStep::Wait,
            scaled_object: ChildStep::Wait,
            fault: None,
            waits_for: None,
        };
    }
    let trigger_authentication = plan_child(
        inputs.trigger_authentication,
        objects.trigger_authentication.as_ref(),
        inputs.inventory,
    );
    let scaled_object = if trigger_authentication == ChildStep::Wait || awaits_previous_hpa {
        ChildStep::Wait
    } else {
        let desired = Some(&objects.scaled_object);
        plan_child(inputs.scaled_object, desired, inputs.inventory)
    };
    ScalingPlan {
        trigger_authentication,
        scaled_object,
        fault: None,
        waits_for: None,
    }
}

/// The fault if another HPA or `ScaledObject`, of any version, scales the same object (KEDA-9).
fn competing_autoscaler(inputs: &ScalingPlanInputs<'_>) -> Option<Fault> {
    let autoscalers = Autoscalers {
        actor: inputs.actor,
        scaled_object: inputs.scaled_object.ours().map(|it| &*it.metadata.uid),
        hpas: inputs.hpas,
        scaled_objects: inputs.scaled_objects,
    };
    let AutoscalerTarget { kind, name, .. } = inputs.target;
    let other = autoscalers.competing_autoscaler(inputs.target)?;
    let hint = match other {
        CompetingAutoscaler::Hpa(_) => {
            ", and scale the workload to at least 1 if it has no pods: an HPA does not start the first one"
        }
        CompetingAutoscaler::ScaledObject(_) => "",
    };
    let text = format!(
        "{other} already scales {kind} {name}, and two autoscalers would conflict; delete it, or set scaling.enabled \
         of this actor to false{hint}"
    );
    Some(Fault::until_change(Reason::RivalAutoscaler, text))
}

/// The fault for an object whose name the actor needs, but which belongs to another owner (SA-3).
fn foreign_child(inputs: &ScalingPlanInputs<'_>) -> Option<Fault> {
    if let Child::Foreign(other) = inputs.scaled_object {
        return Some(not_owned("ScaledObject", &other.metadata));
    }
    let needed = inputs
        .desired
        .is_ok_and(|objects| objects.trigger_authentication.is_some());
    match inputs.trigger_authentication {
        Child::Foreign(other) if needed => {
            Some(not_owned("TriggerAuthentication", &other.metadata))
        }
        Child::Foreign(_) | Child::Ours(_) | Child::NotFound => None,
    }
}

fn not_installed() -> Fault {
    Fault::until_change(
        Reason::KedaNotInstalled,
        "KEDA is not installed: the cluster does not serve scaledobjects.keda.sh; install KEDA, or set \
         scaling.enabled to false",
    )
}

/// Plans the teardown of KEDA's objects. The `TriggerAuthentication` is deleted last, because KEDA needs it while the
/// `ScaledObject` exists (FW-24).
pub fn plan_teardown(
    scaled_object: &Child<ScaledObjectRecord>,
    trigger_authentication: &Child<ChildRecord<TriggerAuthentication>>,
    now: Timestamp,
) -> ScalingTeardown {
    let (scaled_object, deadline) = match scaled_object {
        Child::NotFound | Child::Foreign(_) => (ChildStep::Keep, None),
        Child::Ours(existing) => match finalizer_deadline(existing) {
            None => (ChildStep::Delete(existing.metadata.uid.clone()), None),
            deadline => (ChildStep::Wait, deadline),
        },
    };
    let overdue = deadline.is_some_and(|deadline| deadline <= now);
    let completed = scaled_object == ChildStep::Keep || overdue;
    let trigger_authentication = match trigger_authentication {
        Child::NotFound | Child::Foreign(_) => ChildStep::Keep,
        Child::Ours(existing) if existing.metadata.deleting || !completed => ChildStep::Wait,
        Child::Ours(existing) => ChildStep::Delete(existing.metadata.uid.clone()),
    };
    ScalingTeardown {
        scaled_object,
        trigger_authentication,
        completed,
        deadline: deadline.filter(|_| !overdue),
    }
}

#[cfg(test)]
mod tests;
