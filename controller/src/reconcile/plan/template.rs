//! What to do about the pod template of a target with strategy Template (BIND-50, CONF-1).

use std::time::Duration;

use asya_shared::api::TemplateStatus;
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::fault::{Fault, Reason};
use crate::reconcile::contention::{FieldView, Specs, State, Step};
use crate::reconcile::model::bound_pods::actor_part;
use crate::reconcile::model::handover::Ceded;

/// All that is decided by.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The sidecar is to stand in the template, and may by now (BIND-3).
    pub wished: bool,
    /// Who writes the workload, too.
    pub owner: Option<&'a ObjectRef>,
    /// The workload.
    pub workload: &'a ObjectRef,
    /// What pods are to say.
    pub hash: &'a str,
    /// What only the operator's release and settings make other is applied, too (`asya.sh/roll-now`).
    pub at_once: bool,
    /// Tells the rest of its spec from another.
    pub target: &'a str,
    /// What we own of the workload, as one text; `None`: nothing.
    pub owned: Option<&'a str>,
    /// What we applied last.
    pub before: Option<&'a TemplateStatus>,
    /// How our part stands, if somebody takes it back.
    pub conflict: &'a State,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Now.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Templating {
    /// Nothing: it is not asked for.
    #[default]
    Rest,
    /// Nothing: it stands there.
    Stands,
    /// Apply our part.
    Apply,
    /// Give our part of this workload up, and say why, if that is not asked for.
    Release(ObjectRef, Option<Fault>),
    /// Nothing, but a look when this has passed: another actor's part is to come first.
    Later(Duration),
    /// Give our part of this workload up, if a dry run shows that its pods get the sidecar of the actor that has it now.
    HandOver(ObjectRef, Proof),
    /// Nothing: our part has gone, and with it what was known of it.
    Forget,
    /// Nothing may stand there.
    Refuse(Fault),
    /// Our part was taken back.
    Lost(Specs),
    /// Our part is applied again when this has passed.
    Wait(Duration),
    /// Our part is not applied any more.
    Stop,
}

/// What has to be true of a pod of the target before a younger actor gives its part up.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// The pod to try.
    pub pod: Value,
    /// UID of the actor whose sidecar it has to come back with.
    pub uid: Box<str>,
    /// The actor part of the hash it has to come back with.
    pub part: String,
}

/// Nothing tells the younger actor that the older one is ready.
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Decides about a target that is another actor's (BIND-45): pods restart once, and have the other sidecar then.
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
        // The webhook may not have read the older actor's status yet.
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

/// Decides about one target.
pub fn decide(facts: &Facts<'_>) -> Templating {
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
    // An upgrade of the operator restarts nobody's pods (SAFE-35).
    let part = |hash| {
        if facts.at_once {
            Some(hash)
        } else {
            actor_part(Some(hash))
        }
    };
    let is_same = before.is_some_and(|it| part(&it.hash) == part(facts.hash));
    let intact = before.is_some_and(|it| facts.owned == Some(&*it.fingerprint));
    // Another template may make the containers other ones.
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
        Step::Rest => Templating::Stands,
        Step::Write => Templating::Apply,
        Step::Lost => Templating::Lost(specs),
        Step::Wait(wait) => Templating::Wait(wait),
        Step::Stop => Templating::Stop,
    }
}

#[cfg(test)]
mod tests;
