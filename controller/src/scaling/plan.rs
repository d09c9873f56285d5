//! What to do about an actor's `ScaledObject` and `TriggerAuthentication`.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::Sealed;
use asya_shared::scaling::{KEDA_GROUP, ScalingObjects, Untriggerable};
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::{Child, Fault, Reason, Retry};
use crate::record::{
    Fingerprint, HpaRecord, Metadata, ScaleTarget, ScaledObjectRecord, TriggerAuthenticationRecord,
};

/// KEDA gets this long to let go of a `ScaledObject` (FIN-2).
const KEDA_LETS_GO: Duration = Duration::from_secs(30);

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
    pub trigger_authentication: &'a Child<TriggerAuthenticationRecord>,
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
}

/// What to do about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is as wanted, or nothing can be done.
    Keep,
    /// Apply it.
    Apply,
    /// Delete the one with this uid.
    Delete(Box<str>),
    /// Something must be gone first; its end is an event.
    Wait,
}

/// What to do when scaling is off or the actor goes.
#[derive(Debug, PartialEq)]
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
        };
    }
    let trigger_authentication = plan_trigger_authentication(facts, objects);
    let scaled_object = if trigger_authentication == Step::Wait {
        Step::Wait
    } else {
        plan_scaled_object(facts, &objects.scaled_object)
    };
    ScalingPlan {
        trigger_authentication,
        scaled_object,
        fault: None,
    }
}

fn plan_trigger_authentication(facts: &Facts<'_>, objects: &ScalingObjects) -> Step {
    match (
        facts.trigger_authentication,
        &objects.trigger_authentication,
    ) {
        (Child::Ours(found), _) if found.metadata.deleting => Step::Wait,
        (Child::Ours(found), Some(wanted)) => {
            let held = Held {
                metadata: &found.metadata,
                applied_hash: found.applied_hash.as_deref(),
                fingerprint: found.fingerprint,
            };
            apply_unless(held.is(wanted, facts.inventory, "TriggerAuthentication"))
        }
        (Child::Ours(found), None) => Step::Delete(found.metadata.uid.clone()),
        (Child::Absent, Some(_)) => Step::Apply,
        (Child::Absent, None) | (Child::Foreign(_), _) => Step::Keep,
    }
}

fn plan_scaled_object(facts: &Facts<'_>, wanted: &Sealed) -> Step {
    match facts.scaled_object {
        Child::Ours(found) if found.metadata.deleting => Step::Wait,
        Child::Ours(found) => {
            let held = Held {
                metadata: &found.metadata,
                applied_hash: found.applied_hash.as_deref(),
                fingerprint: found.fingerprint,
            };
            apply_unless(held.is(wanted, facts.inventory, "ScaledObject"))
        }
        // a new one would share the workload with the HPA of the old
        Child::Absent if facts.hpas.iter().any(|hpa| is_of_name(hpa, facts.actor)) => Step::Wait,
        Child::Absent => Step::Apply,
        Child::Foreign(_) => Step::Keep,
    }
}

fn apply_unless(unchanged: bool) -> Step {
    if unchanged { Step::Keep } else { Step::Apply }
}

/// An object that we made, as the watch shows it.
struct Held<'a> {
    metadata: &'a Metadata,
    applied_hash: Option<&'a str>,
    fingerprint: Option<Fingerprint>,
}

impl Held<'_> {
    /// Same object, sent with the same content, and nobody took a field of ours since.
    fn is(&self, wanted: &Sealed, inventory: &[InventoryEntry], kind: &str) -> bool {
        let fingerprint = self.fingerprint.map(|fingerprint| fingerprint.to_string());
        let name = &*self.metadata.key.name;
        let mut entries = inventory.iter();
        let recorded = entries
            .find(|entry| (&*entry.group, &*entry.kind, &*entry.name) == (KEDA_GROUP, kind, name));
        recorded.is_some_and(|recorded| {
            self.applied_hash == Some(&wanted.hash)
                && recorded.hash.as_deref() == Some(&wanted.hash)
                && recorded.uid.as_deref() == Some(&*self.metadata.uid)
                && fingerprint.is_some()
                && recorded.fingerprint == fingerprint
        })
    }
}

/// KEDA-9: both kinds that scale, of any version, on the same object and not ours.
fn rival(facts: &Facts<'_>) -> Option<Fault> {
    let ours = match facts.scaled_object {
        Child::Ours(found) => Some(&*found.metadata.uid),
        Child::Absent | Child::Foreign(_) => None,
    };
    let scaled_objects = facts
        .scaled_objects
        .iter()
        .filter(|found| found.target == *facts.target && Some(&*found.metadata.uid) != ours);
    let hpas = facts
        .hpas
        .iter()
        .filter(|hpa| hpa.target == *facts.target && !is_of_name(hpa, facts.actor));
    // its HPA goes with it, so the ScaledObject is the one to name
    let names = scaled_objects
        .map(|found| format!("ScaledObject {}", found.metadata.key.name))
        .min()
        .or_else(|| {
            hpas.map(|hpa| format!("HorizontalPodAutoscaler {}", hpa.metadata.key.name))
                .min()
        });
    let ScaleTarget { kind, name, .. } = facts.target;
    names.map(|rival| {
        Fault::until_change(
            Reason::RivalAutoscaler,
            format!(
                "{rival} scales {kind} {name} already, and two would fight; delete it, or set scaling.enabled of \
                 this actor to false"
            ),
        )
    })
}

/// Whether KEDA made this HPA for a `ScaledObject` of this name: ours, or an earlier one, with which it is
/// about to go.
fn is_of_name(hpa: &HpaRecord, actor: &str) -> bool {
    let owner = hpa.metadata.controller.as_ref();
    owner.is_some_and(|owner| &*owner.kind == "ScaledObject" && &*owner.name == actor)
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

fn not_owned(kind: &str, metadata: &Metadata) -> Fault {
    let owner = match &metadata.controller {
        Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
        None => "was not made by this operator".to_owned(),
    };
    Fault {
        reason: Reason::NotOwned,
        message: format!(
            "{kind} {} exists and {owner}; delete it or rename this actor (adoptionPolicy: IfUnowned takes over one \
             without an owner)",
            metadata.key
        ),
        retry: Retry::Slowly,
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
    trigger_authentication: &Child<TriggerAuthenticationRecord>,
    now: Timestamp,
) -> Removal {
    let (scaled_object, until) = match scaled_object {
        Child::Absent | Child::Foreign(_) => (Step::Keep, None),
        Child::Ours(found) => match &found.deleted {
            None => (Step::Delete(found.metadata.uid.clone()), None),
            Some(began) => {
                let ends = began.0.checked_add(KEDA_LETS_GO).unwrap_or(Timestamp::MAX);
                (Step::Wait, Some(ends))
            }
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
