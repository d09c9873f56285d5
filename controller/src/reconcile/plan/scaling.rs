//! Plans an actor's `ScaledObject` and `TriggerAuthentication`.

use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use asya_shared::scaling::{ScalingObjects, Untriggerable};
use k8s_openapi::jiff::Timestamp;

use super::{ChildStep, not_owned, plan_child};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::record::{
    ChildRecord, HpaRecord, ScaleTarget, ScaledObjectRecord, TriggerAuthentication,
};
use crate::scaling::autoscalers::{Autoscalers, is_of_name, lets_go_by};

/// Inputs to [`plan_scaling`].
pub struct ScalingFacts<'a> {
    /// Name of the actor and of its `ScaledObject`.
    pub actor: &'a str,
    /// The desired objects, or why the queue cannot be described to KEDA.
    pub wanted: Result<&'a ScalingObjects, &'a Untriggerable>,
    /// Whether KEDA's CRDs are installed.
    pub installed: bool,
    /// The object to scale.
    pub target: &'a ScaleTarget,
    /// Whether it exists, and is ours or bound.
    pub target_exists: bool,
    /// The object found under the `ScaledObject`'s name.
    pub scaled_object: &'a Child<ScaledObjectRecord>,
    /// The object found under the `TriggerAuthentication`'s name.
    pub trigger_authentication: &'a Child<ChildRecord<TriggerAuthentication>>,
    /// All HPAs that concern the actor.
    pub hpas: &'a [Arc<HpaRecord>],
    /// All `ScaledObject`s that concern the actor.
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
    pub waits_for: Option<&'static str>,
}

/// The steps when scaling is off or the actor is being deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    pub scaled_object: ChildStep,
    pub trigger_authentication: ChildStep,
    /// Whether the workload may be deleted: KEDA has released it, or has had its time.
    pub released: bool,
    /// When to stop waiting for KEDA.
    pub until: Option<Timestamp>,
}

impl ScalingPlan {
    /// Whether to apply the objects now, from the outcome of the steps before: `settings` is what keeps KEDA from
    /// logging in.
    ///
    /// # Errors
    /// What to report instead; `None` while there is nothing to scale yet.
    pub fn may_apply(
        &self,
        settings: Option<Fault>,
        target_exists: bool,
    ) -> Result<(), Option<Fault>> {
        match self.fault.clone().or(settings) {
            Some(fault) => Err(Some(fault)),
            None if target_exists => Ok(()),
            None => Err(None),
        }
    }
}

/// Plans KEDA's objects while scaling is on.
pub fn plan_scaling(facts: &ScalingFacts<'_>) -> ScalingPlan {
    let refuse = |fault| ScalingPlan {
        trigger_authentication: ChildStep::Keep,
        scaled_object: ChildStep::Keep,
        fault: Some(fault),
        waits_for: None,
    };
    if !facts.installed {
        return refuse(not_installed());
    }
    if let Some(fault) = taken(facts).or_else(|| rival(facts)) {
        return refuse(fault);
    }
    let objects = match facts.wanted {
        Ok(objects) => objects,
        Err(error) => {
            let text = error.to_string();
            return refuse(Fault::until_change(Reason::QueueURLUnknown, text));
        }
    };
    if !facts.target_exists {
        return ScalingPlan {
            trigger_authentication: ChildStep::Wait,
            scaled_object: ChildStep::Wait,
            fault: None,
            waits_for: None,
        };
    }
    let trigger_authentication = plan_child(
        facts.trigger_authentication,
        objects.trigger_authentication.as_ref(),
        facts.inventory,
    );
    let scaled_object = if trigger_authentication == ChildStep::Wait {
        ChildStep::Wait
    } else {
        plan_scaled_object(facts, &objects.scaled_object)
    };
    ScalingPlan {
        trigger_authentication,
        scaled_object,
        fault: None,
        waits_for: None,
    }
}

fn plan_scaled_object(facts: &ScalingFacts<'_>, wanted: &HashedManifest) -> ChildStep {
    let absent = matches!(facts.scaled_object, Child::Absent);
    // A new `ScaledObject` would share the workload with the HPA of the old one.
    if absent && facts.hpas.iter().any(|hpa| is_of_name(hpa, facts.actor)) {
        return ChildStep::Wait;
    }
    plan_child(facts.scaled_object, Some(wanted), facts.inventory)
}

/// The fault if an HPA or `ScaledObject` of any version, and not ours, scales the same object (KEDA-9).
fn rival(facts: &ScalingFacts<'_>) -> Option<Fault> {
    let autoscalers = Autoscalers {
        actor: facts.actor,
        scaled_object: facts.scaled_object.ours().map(|it| &*it.metadata.uid),
        hpas: facts.hpas,
        scaled_objects: facts.scaled_objects,
    };
    let ScaleTarget { kind, name, .. } = facts.target;
    autoscalers.rival_on(facts.target).map(|rival| {
        Fault::until_change(
            Reason::RivalAutoscaler,
            format!(
                "{rival} scales {kind} {name} already, and two would fight; delete it, or set scaling.enabled of \
                 this actor to false"
            ),
        )
    })
}

/// The fault for a name that the actor needs and another owner holds (SA-3).
fn taken(facts: &ScalingFacts<'_>) -> Option<Fault> {
    if let Child::Foreign(found) = facts.scaled_object {
        return Some(not_owned("ScaledObject", &found.metadata));
    }
    let needed = facts
        .wanted
        .is_ok_and(|objects| objects.trigger_authentication.is_some());
    match facts.trigger_authentication {
        Child::Foreign(found) if needed => {
            Some(not_owned("TriggerAuthentication", &found.metadata))
        }
        Child::Foreign(_) | Child::Ours(_) | Child::Absent => None,
    }
}

fn not_installed() -> Fault {
    Fault::until_change(
        Reason::KedaNotInstalled,
        "KEDA is not installed: the cluster does not know scaledobjects.keda.sh; install KEDA, or set scaling.enabled \
         to false",
    )
}

/// Plans the removal of KEDA's objects. The `TriggerAuthentication` is deleted last, because KEDA needs it for as long
/// as the `ScaledObject` exists (FW-24).
pub fn plan_removal(
    scaled_object: &Child<ScaledObjectRecord>,
    trigger_authentication: &Child<ChildRecord<TriggerAuthentication>>,
    now: Timestamp,
) -> Removal {
    let (scaled_object, until) = match scaled_object {
        Child::Absent | Child::Foreign(_) => (ChildStep::Keep, None),
        Child::Ours(found) => match lets_go_by(found) {
            None => (ChildStep::Delete(found.metadata.uid.clone()), None),
            until => (ChildStep::Wait, until),
        },
    };
    let overdue = until.is_some_and(|ends| ends <= now);
    let released = scaled_object == ChildStep::Keep || overdue;
    let trigger_authentication = match trigger_authentication {
        Child::Absent | Child::Foreign(_) => ChildStep::Keep,
        Child::Ours(found) if found.metadata.deleting || !released => ChildStep::Wait,
        Child::Ours(found) => ChildStep::Delete(found.metadata.uid.clone()),
    };
    Removal {
        scaled_object,
        trigger_authentication,
        released,
        until: until.filter(|_| !overdue),
    }
}

#[cfg(test)]
mod tests;
