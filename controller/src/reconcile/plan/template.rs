//! Plans our part of a target's pod template, with strategy Template (BIND-50, CONF-1).

pub mod write;

use std::time::Duration;

use asya_shared::api::TemplateStatus;
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::contention::{FieldStep, FieldView, Specs, State};
use crate::reconcile::model::bound_pods::actor_part;
use crate::reconcile::model::handover::Ceded;
use crate::reconcile::model::outcome::Templated;

/// Inputs to [`decide`].
#[derive(Clone, Debug)]
pub struct TemplateFacts<'a> {
    /// The sidecar should be in the template, and the binding is in force (BIND-3).
    pub wished: bool,
    /// The object whose controller also writes the workload.
    pub owner: Option<&'a ObjectRef>,
    pub workload: &'a ObjectRef,
    /// The hash that pods should carry.
    pub hash: &'a str,
    /// Apply changes that come only from the operator's release or settings, too (`asya.sh/roll-now`).
    pub at_once: bool,
    /// Identifies the rest of the workload's spec.
    pub target: &'a str,
    /// Our fields of the workload, as one string; `None`: we own none.
    pub owned: Option<&'a str>,
    /// Our last apply, from status.
    pub before: Option<&'a TemplateStatus>,
    /// Contention state of our part.
    pub conflict: &'a State,
    /// The actor's generation.
    pub generation: i64,
    pub now: Timestamp,
}

/// The decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Templating {
    /// Nothing: our part is not desired.
    #[default]
    Rest,
    /// Nothing: our part is in place.
    Stands,
    /// Apply our part.
    Apply,
    /// Remove our part from this workload, and report why, unless the spec asks for that.
    Release(ObjectRef, Option<Fault>),
    /// Check again after this delay: another actor's part comes first.
    Later(Duration),
    /// Remove our part from this workload if a dry run shows that its pods get the sidecar of the actor that binds it
    /// now.
    HandOver(ObjectRef, Proof),
    /// Our part is already removed: clear it from status.
    Forget,
    /// Our part is not allowed there.
    Refuse(Fault),
    /// Our part was taken back.
    Lost(Specs),
    /// Apply our part again after this delay.
    Wait(Duration),
    /// Our part is no longer applied.
    Stop,
}

/// What a dry run has to show before a younger actor removes its part.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// The pod for the dry run.
    pub pod: Value,
    /// UID of the actor whose sidecar the pod has to get.
    pub uid: Box<str>,
    /// The actor part of the hash that the pod has to carry.
    pub part: String,
}

/// Requeue delay: no event tells the younger actor that the older one is ready.
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Templating {
    /// Whether our part leaves the pod template, now or later. An actor without a usable queue gives it up, too.
    pub fn gives_up(&self) -> bool {
        matches!(
            self,
            Self::Release(..) | Self::HandOver(..) | Self::Later(_) | Self::Forget
        )
    }
}

/// Decides for a target that another actor now binds (BIND-45): pods restart once, and then have the other sidecar.
pub fn cede(ceded: &Ceded) -> Templating {
    let Ceded::Stands {
        workload,
        owned,
        successor,
        pod,
    } = ceded
    else {
        return Templating::Forget;
    };
    let overwrites = successor.templates && !owned;
    if !successor.in_force || overwrites {
        return Templating::Later(LOOK_AGAIN);
    }
    match (&successor.proved, pod) {
        // The webhook may not have observed the older actor's status yet.
        (Some(part), Some(pod)) if !successor.templates => {
            let proof = Proof {
                pod: pod.clone(),
                uid: successor.uid.clone(),
                part: part.clone(),
            };
            Templating::HandOver(workload.clone(), proof)
        }
        _ => Templating::Release(workload.clone(), None),
    }
}

/// Decides for one target.
pub fn decide(facts: &TemplateFacts<'_>) -> Templating {
    let uid = facts.workload.uid.as_deref();
    let before = facts.before.filter(|it| Some(&*it.uid) == uid);
    let is_there = before.is_some() && facts.owned.is_some();
    if !facts.wished {
        return if is_there {
            Templating::Release(facts.workload.clone(), None)
        } else {
            Templating::Rest
        };
    }
    if let Some(owner) = facts.owner {
        let text = format!(
            "spec.binding.strategy: {} belongs to {owner}, which would take the sidecar out of its template; use Pod",
            facts.workload
        );
        let fault = Fault::until_change(Reason::StrategyNotAllowed, text);
        return if is_there {
            Templating::Release(facts.workload.clone(), Some(fault))
        } else {
            Templating::Refuse(fault)
        };
    }
    // Upgrading the operator restarts no pods, so only the actor part of the hash counts (SAFE-35).
    let part = |hash| {
        if facts.at_once {
            Some(hash)
        } else {
            actor_part(Some(hash))
        }
    };
    let is_same = before.is_some_and(|it| part(&it.hash) == part(facts.hash));
    let intact = before.is_some_and(|it| facts.owned == Some(&*it.fingerprint));
    // Our containers depend on the rest of the template.
    let made_for = before.is_some_and(|it| it.target == facts.target);
    let specs = Specs {
        generation: facts.generation,
        target: facts.target.to_owned(),
    };
    let sight = FieldView {
        needed: true,
        written: is_same && !intact,
        stands: is_same && intact && made_for,
    };
    match facts.conflict.decide(sight, &specs, facts.now) {
        FieldStep::Rest => Templating::Stands,
        FieldStep::Write => Templating::Apply,
        FieldStep::Lost => Templating::Lost(specs),
        FieldStep::Wait(wait) => Templating::Wait(wait),
        FieldStep::Stop => Templating::Stop,
    }
}

/// Status message until our part is applied again.
pub const TAKEN_BACK: &str = "what Asya has in the target's pod template was taken back; it is put there again after a pause (condition Conflict says what, and by whom)";

/// Whether a younger actor's part is removed now: only once a dry run has shown that new pods get the sidecar of the
/// actor that binds the target.
///
/// # Errors
/// What is reported until then.
pub fn after_proof(proved: bool) -> Result<(), Templated> {
    if proved {
        Ok(())
    } else {
        Err(comes_first(LOOK_AGAIN))
    }
}

pub fn comes_first(wait: Duration) -> Templated {
    let text = "another actor's sidecar comes first";
    write::waits(Reason::AlreadyBound, text, Requeue::After(wait))
}

#[cfg(test)]
mod tests;
