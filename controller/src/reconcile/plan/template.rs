//! What to do about the pod template of a target with strategy Template (BIND-50, CONF-1).

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingStrategy, TemplateStatus};
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::bound_pods::actor_part;
use crate::reconcile::conflict::{Sight, Specs, State, Step};
use crate::reconcile::{Fault, Reason};

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

/// What an actor applied to the pod template of a target that an older one binds.
#[derive(Clone, Debug, PartialEq)]
pub enum Ceded {
    /// It does not stand there any more.
    Gone,
    /// It does.
    Stands {
        /// The workload.
        workload: ObjectRef,
        /// Somebody else writes that, too, so nothing of ours is to stand there.
        owned: bool,
        /// The older actor.
        heir: Heir,
    },
}

/// The actor that a target is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heir {
    /// New pods of the target get its sidecar.
    pub in_force: bool,
    /// It has strategy Template, too.
    pub templates: bool,
}

impl Heir {
    /// By what status says of an actor of this generation. Pods of the target would restart twice if they came without
    /// its sidecar first (BIND-45), so a dry run has to have passed; a status of an earlier release has no gate (SAFE-3).
    pub fn of(status: &AsyncActorStatus, generation: i64, strategy: BindingStrategy) -> Self {
        let templates = strategy == BindingStrategy::Template;
        let injection = status.injection.as_ref();
        let admits = injection.is_none_or(|it| {
            it.proved.is_some() && it.refused.is_none() && it.generation == Some(generation)
        });
        let bound = status.bound_since.is_some() && status.resolved_target.is_some();
        Self {
            in_force: bound && (admits || templates),
            templates,
        }
    }
}

/// Whoever has come too late and has written something gives it up (BIND-45): pods restart once, and have the other
/// sidecar then.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Decides about a target that is another actor's.
pub fn cede(ceded: &Ceded) -> Templating {
    match ceded {
        Ceded::Gone => Templating::Forget,
        Ceded::Stands { heir, owned, .. } if !heir.in_force || (heir.templates && !owned) => {
            // Who templates writes his part over ours.
            Templating::Later(LOOK_AGAIN)
        }
        Ceded::Stands { workload, .. } => Templating::Release(workload.clone(), None),
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
    let sight = Sight {
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
