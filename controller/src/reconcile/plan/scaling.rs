//! What to do about an actor's `ScaledObject` and `TriggerAuthentication`.

use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use asya_shared::scaling::{ScalingObjects, Untriggerable};
use k8s_openapi::jiff::Timestamp;

use super::{Step, not_owned, plan_child};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::record::{
    ChildRecord, HpaRecord, ScaleTarget, ScaledObjectRecord, TriggerAuthentication,
};
use crate::scaling::autoscalers::{Autoscalers, is_of_name, lets_go_by};

/// All that the plan of a wanted scaling is made from.
pub struct Facts<'a> {
    /// Name of the actor, which the `ScaledObject` has, too.
    pub actor: &'a str,
    /// The objects that are wanted, or why KEDA cannot be told of the queue.
    pub wanted: Result<&'a ScalingObjects, &'a Untriggerable>,
    /// Whether KEDA's CRDs are there.
    pub installed: bool,
    /// What is to be scaled.
    pub target: &'a ScaleTarget,
    /// Whether it is there, and ours or bound.
    pub target_exists: bool,
    /// The object under the `ScaledObject`'s name.
    pub scaled_object: &'a Child<ScaledObjectRecord>,
    /// The object under the `TriggerAuthentication`'s name.
    pub trigger_authentication: &'a Child<ChildRecord<TriggerAuthentication>>,
    /// All HPAs that concern the actor.
    pub hpas: &'a [Arc<HpaRecord>],
    /// All `ScaledObject`s that concern the actor.
    pub scaled_objects: &'a [Arc<ScaledObjectRecord>],
    /// What status remembers of the objects as we last applied them.
    pub inventory: &'a [InventoryEntry],
}

/// What to do, in this order: applied is first the `TriggerAuthentication` (and, before it, the
/// transport's `ConfigMap`), deleted is first the `ScaledObject`.
#[derive(Debug, PartialEq)]
pub struct ScalingPlan {
    /// About the `TriggerAuthentication`.
    pub trigger_authentication: Step,
    /// About the `ScaledObject`.
    pub scaled_object: Step,
    /// Why scaling cannot be had as wanted.
    pub fault: Option<Fault>,
    /// What a binding's first `ScaledObject` waits for.
    pub waits_for: Option<&'static str>,
}

/// What to do when scaling is off or the actor goes.
#[derive(Debug, Default, PartialEq)]
pub struct Removal {
    /// About the `ScaledObject`.
    pub scaled_object: Step,
    /// About the `TriggerAuthentication`.
    pub trigger_authentication: Step,
    /// Whether the workload may go: KEDA has let go of it, or had its time.
    pub released: bool,
    /// When waiting for KEDA ends.
    pub until: Option<Timestamp>,
}

/// Decides what to do about a scaling that is wanted.
pub fn plan_scaling(facts: &Facts<'_>) -> ScalingPlan {
    let refuse = |fault| ScalingPlan {
        trigger_authentication: Step::Keep,
        scaled_object: Step::Keep,
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
            trigger_authentication: Step::Wait,
            scaled_object: Step::Wait,
            fault: None,
            waits_for: None,
        };
    }
    let trigger_authentication = plan_child(
        facts.trigger_authentication,
        objects.trigger_authentication.as_ref(),
        facts.inventory,
    );
    let scaled_object = if trigger_authentication == Step::Wait {
        Step::Wait
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

fn plan_scaled_object(facts: &Facts<'_>, wanted: &HashedManifest) -> Step {
    let absent = matches!(facts.scaled_object, Child::Absent);
    // a new one would share the workload with the HPA of the old
    if absent && facts.hpas.iter().any(|hpa| is_of_name(hpa, facts.actor)) {
        return Step::Wait;
    }
    plan_child(facts.scaled_object, Some(wanted), facts.inventory)
}

/// KEDA-9: both kinds that scale, of any version, on the same object and not ours.
fn rival(facts: &Facts<'_>) -> Option<Fault> {
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

/// SA-3: a name that we need is somebody else's.
fn taken(facts: &Facts<'_>) -> Option<Fault> {
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

/// Decides how to take down what we made, in the order of FW-24: KEDA needs the `TriggerAuthentication`
/// for as long as the `ScaledObject` is there.
pub fn plan_removal(
    scaled_object: &Child<ScaledObjectRecord>,
    trigger_authentication: &Child<ChildRecord<TriggerAuthentication>>,
    now: Timestamp,
) -> Removal {
    let (scaled_object, until) = match scaled_object {
        Child::Absent | Child::Foreign(_) => (Step::Keep, None),
        Child::Ours(found) => match lets_go_by(found) {
            None => (Step::Delete(found.metadata.uid.clone()), None),
            until => (Step::Wait, until),
        },
    };
    let overdue = until.is_some_and(|ends| ends <= now);
    let released = scaled_object == Step::Keep || overdue;
    let trigger_authentication = match trigger_authentication {
        Child::Absent | Child::Foreign(_) => Step::Keep,
        Child::Ours(found) if found.metadata.deleting || !released => Step::Wait,
        Child::Ours(found) => Step::Delete(found.metadata.uid.clone()),
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
