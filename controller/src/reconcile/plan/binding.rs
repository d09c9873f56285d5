//! Plans a binding: an actor whose workload another controller manages.

use std::time::Duration;

use asya_shared::resolve::{Claim, FindingReason, GroupKind, ObjectRef};
use k8s_openapi::jiff::Timestamp;

use super::contest::ContestedField;
use super::decision::{Bind, ContestedFields, Plan};
use super::finalizers::plan_finalizers;
use super::probe::{self, ProbeInputs, Probing};
use super::queue::{plan_queue, was_verified};
use super::roll::facts::{Act, Rolling};
use super::roll::inputs::RollInputs;
use super::scaling::{self, Removal, plan_removal, plan_scaling};
use super::scaling_children::ScalingChildren;
use super::steps::ScalingStep;
use super::template::Templating;
use super::template::write::TemplateInputs;
use super::wake::{self, Waking};
use super::{claim, contest, replicas, retired, roll, scaling_gate, template};
use crate::fault::Reason;
use crate::reconcile::contention::{Part, history};
use crate::reconcile::desired::drain::may_roll;
use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::binding::PartOwner;
use crate::reconcile::model::bound_pods::actor_part;
use crate::reconcile::model::observed::{Observed, is_done_once};
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::wake::wake;

/// Plans a binding that is not being torn down.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let seen = observed.binding.as_ref();
    let mut scaling = seen.and_then(|seen| plan_scaling_step(observed, seen, now));
    if observed.actor.annotations.paused {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        return Plan::Rest(Box::new(Ensured::before(observed, fault)));
    }
    let done_once = is_done_once(&observed.actor, &observed.previous);
    let mut bind = if done_once {
        Bind {
            done_once: true,
            roll: plan_roll(observed, now).filter(|it| !replaces_pods(it)),
            ..Bind::only(observed, scaling)
        }
    } else {
        let contest = contest::plan(observed, scaling.as_mut(), now);
        let roll = plan_roll(observed, now);
        let claim = claim::plan(observed, scaling.as_mut(), roll.as_ref(), now);
        Bind {
            retired: retired::looks(observed),
            contest,
            replicas: replicas::plan(observed, scaling.as_ref(), now),
            wake: seen.and_then(|seen| plan_wake(observed, seen, scaling.as_ref()?, roll.as_ref())),
            template: plan_template(observed, now).unwrap_or_default(),
            claim,
            mark: plan_mark(observed),
            roll,
            ..Bind::only(observed, scaling)
        }
    };
    bind.add_inputs(observed, now);
    Plan::Bind(Box::new(bind))
}

impl Bind {
    /// Only finalizers, queue, scaling and the dry run; the caller adds the other steps.
    fn only(observed: &Observed, scaling: Option<ScalingStep>) -> Self {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        let mut before = Ensured::before(observed, fault);
        if let Some(scaled) = &mut before.scaling {
            scaled.waits_for = scaling.as_ref().and_then(ScalingStep::waits_for);
        }
        Self {
            before,
            desired: observed.desired.as_ref().ok().cloned(),
            finalizers: plan_finalizers(observed),
            done_once: false,
            queue: plan_queue(observed),
            began: observed.began,
            recreates_queue: was_verified(observed),
            scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
            scaling,
            contested: ContestedFields {
                scaled_object: ContestedField::ScaledObject(None),
                replicas: None,
                claim: ContestedField::Claim(ObjectRef::default()),
            },
            contest: None,
            replicas: None,
            wake: None,
            template: template::Templating::default(),
            template_inputs: None,
            claim: None,
            mark: None,
            probe: plan_probe(observed),
            probe_inputs: ProbeInputs::new(observed),
            roll: None,
            roll_inputs: None,
            frees_slot: false,
            retired: Vec::new(),
        }
    }

    /// Adds what the decided steps need.
    fn add_inputs(&mut self, observed: &Observed, now: Timestamp) {
        if matches!(self.template, Templating::Apply | Templating::Lost(_)) {
            self.template_inputs = TemplateInputs::new(observed);
        }
        let roll = self.roll.as_ref();
        self.roll_inputs = roll.map(|it| RollInputs::new(observed, it, now));
        self.frees_slot = self.roll.is_none() && is_known(observed);
        let target = observed.resolved().map(|it| &it.target);
        self.contested = ContestedFields {
            scaled_object: ContestedField::scaled_object(observed, self.contest.as_ref()),
            replicas: target.map(|it| ContestedField::Replicas(it.workload.clone())),
            claim: ContestedField::Claim(
                claim_of(observed).map_or_else(ObjectRef::default, |it| it.owner.clone()),
            ),
        };
    }
}

/// Whether the target was looked up, or need not be. If so, a rollout that is not planned is over.
fn is_known(observed: &Observed) -> bool {
    let target = observed.binding.as_ref().and_then(|it| it.target.as_ref());
    target.is_some() || observed.desired.is_err()
}

/// Whether a step replaces pods. One that does not is also taken under `reconcile: Once`, because the webhook depends
/// on its result (FW-21).
fn replaces_pods(rolling: &Rolling) -> bool {
    !matches!(rolling, Rolling::Rest | Rolling::Act(Act::Prove))
}

fn claim_of(observed: &Observed) -> Option<&Claim> {
    observed.resolved()?.target.scale.claim()
}

/// Marks each workload once, whatever becomes of the mark. Only a `Deployment` or `StatefulSet` is marked: a custom
/// resource may pass annotations on to its pods (BIND-47).
fn plan_mark(observed: &Observed) -> Option<ObjectRef> {
    let workload = &observed.resolved()?.target.workload;
    let GroupKind { group, kind } = workload.group_kind();
    let before = observed.previous.resolved_target.as_ref();
    let is_known = before.is_some_and(|it| it.uid == workload.uid);
    let is_one = group == "apps" && matches!(kind, "Deployment" | "StatefulSet");
    (is_one && !is_known).then(|| workload.clone())
}

fn plan_probe(observed: &Observed) -> Probing {
    let seen = observed.binding.as_ref().and_then(|it| it.probe.as_ref());
    seen.map_or(Probing::Rest, |seen| {
        probe::decide(probe::ProbeFacts {
            wanted: seen.wanted,
            requested: seen.turn.requested,
            wait: seen.turn.wait,
        })
    })
}

fn plan_roll(observed: &Observed, now: Timestamp) -> Option<Rolling> {
    let (bound, seen, resolved) = (observed.bound()?, observed.rollout()?, observed.resolved()?);
    let counted = &seen.counted;
    if !may_roll(observed.drain.as_ref(), counted.pods.injected) {
        return None;
    }
    if resolved
        .part_of_other(&observed.actor.metadata.uid)
        .is_some()
    {
        return Some(wait_for_other_part(
            observed.binding.as_ref()?.part_of.as_ref(),
        ));
    }
    let (target, at_once) = (&resolved.target, observed.actor.annotations.roll_now);
    let hash = bound.injected_hash.as_deref()?;
    let unknown = FindingReason::UnknownOwner;
    let conflicts = &observed.previous.conflicts;
    let conflict = history::state(conflicts, resolved.uid()?, Part::Roll);
    Some(roll::decide(&roll::facts::RolloutFacts {
        rollout: bound.rollout,
        at_once,
        bound: observed.previous.bound_since.is_some(),
        has_url: bound.has_url || target.server.url.is_some(),
        wanted: if at_once {
            hash
        } else {
            actor_part(Some(hash))?
        },
        lacking: counted.replaceable(at_once),
        matched: counted.pods.matched,
        total: counted.total,
        availability: &seen.availability,
        limit: observed.progress_limit(),
        roll: &target.roll,
        unknown_owner: target.warnings.iter().any(|it| it.reason == unknown),
        live: &seen.live,
        target: &seen.target,
        budget: seen.budget.as_deref(),
        has_slot: seen.has_slot,
        before: observed.previous.rollout.as_ref(),
        conflict: &conflict,
        proved: observed.proved(),
        generation: observed.actor.generation,
        now,
    }))
}

/// Taking the other actor's sidecar out of the pod template replaces the pods. A rollout of ours before that would be a
/// second one (BIND-45).
fn wait_for_other_part(owner: Option<&PartOwner>) -> Rolling {
    let whose = match owner {
        Some(PartOwner { name, paused: true }) => format!(
            "AsyncActor {name}, which is paused and removes it once annotation asya.sh/paused is gone"
        ),
        Some(PartOwner { name, .. }) => format!("AsyncActor {name}"),
        None => "an AsyncActor that no longer exists".to_owned(),
    };
    let text = format!(
        "the pod template of the target still contains the sidecar of {whose}; its pods are replaced when that is removed"
    );
    Rolling::Wait(Reason::RolloutWaiting, text, Duration::from_secs(10))
}

/// BIND-50
fn plan_template(observed: &Observed, now: Timestamp) -> Option<template::Templating> {
    if let Some(ceded) = observed.binding.as_ref().and_then(|it| it.ceded.as_ref()) {
        return Some(template::cede(ceded));
    }
    let (bound, resolved) = (observed.bound()?, observed.resolved()?);
    let previous = &observed.previous;
    let target = &resolved.target;
    let has_url = bound.has_url || target.server.url.is_some();
    let conflict = history::state(&previous.conflicts, resolved.uid()?, Part::Template);
    let uid = &observed.actor.metadata.uid;
    let owned = resolved.templated.as_ref().filter(|it| it.is_of(uid));
    Some(template::decide(&template::TemplateFacts {
        wished: bound.plan.is_some() && previous.bound_since.is_some() && has_url,
        owner: target.owner.as_ref(),
        workload: &target.workload,
        hash: bound.injected_hash.as_deref()?,
        at_once: observed.actor.annotations.roll_now,
        target: &resolved.spec,
        owned: owned.map(|part| &*part.fields),
        before: previous.template.as_ref(),
        conflict: &conflict,
        generation: observed.actor.generation,
        now,
    }))
}

/// Wakes the target once KEDA has released it, because no HPA scales a workload up from zero. Only a target that the
/// queue scaled, according to status, is woken (SO-6).
fn plan_wake(
    observed: &Observed,
    binding: &BindingSeen,
    scaling: &ScalingStep,
    roll: Option<&Rolling>,
) -> Option<Waking> {
    let ScalingStep::Unwanted(Removal { released: true, .. }) = scaling else {
        return None;
    };
    let resolved = binding.target.as_ref()?.as_ref().ok()?;
    let wanted = wake(observed, resolved.target.scale.object()?)?;
    let gate = observed.gate();
    let facts = wake::WakeFacts {
        claim: claim_of(observed),
        roll,
        gate: gate.as_ref(),
        probes: plan_probe(observed) == Probing::Ask,
    };
    Some(wake::decide(&facts, wanted))
}

/// Scales what the target resolves to, and only while that exists (SO-1).
fn plan_scaling_step(
    observed: &Observed,
    binding: &BindingSeen,
    now: Timestamp,
) -> Option<ScalingStep> {
    let seen = &observed.scaling;
    let removal = || plan_removal(&seen.scaled_object, &seen.trigger_authentication, now);
    if !observed.bound()?.scales || is_lost(binding) {
        return Some(ScalingStep::Unwanted(removal()));
    }
    let scaling = match binding.scaling.as_ref()? {
        Ok(scaling) => scaling,
        Err(fault) => return Some(ScalingStep::Refused(removal(), fault.clone())),
    };
    let claimed = claim::judge(observed, claim_of(observed));
    if let Some(fault) = claimed.lost {
        return Some(ScalingStep::Refused(removal(), fault));
    }
    let gate = scaling_gate::of(observed, binding);
    let mut plan = plan_scaling(&scaling::ScalingFacts {
        actor: &observed.key().name,
        wanted: scaling.objects.as_ref(),
        installed: seen.installed,
        target: &scaling.target,
        target_exists: !claimed.waits && gate.is_none(),
        scaled_object: &seen.scaled_object,
        trigger_authentication: &seen.trigger_authentication,
        hpas: &claimed.hpas,
        scaled_objects: &seen.scaled_objects,
        inventory: &observed.previous.inventory,
    });
    plan.waits_for = gate.filter(|_| plan.fault.is_none());
    Some(ScalingStep::Wanted(plan))
}

/// Whether the target is known to be deleted, unsupported or bound by another actor: then its `ScaledObject` does harm.
/// It does none while the target merely cannot be read (BIND-42).
fn is_lost(binding: &BindingSeen) -> bool {
    let fault = binding.target.as_ref().and_then(|it| it.as_ref().err());
    fault.is_some_and(|fault| {
        matches!(
            fault.reason,
            Reason::TargetNotFound
                | Reason::TargetStopped
                | Reason::KindNotInstalled
                | Reason::AlreadyBound
                | Reason::UnsupportedTarget
                | Reason::CrossNamespace
                | Reason::NamespaceExcluded
        )
    })
}

#[cfg(test)]
mod tests;
