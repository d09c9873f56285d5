//! Plans a binding: an actor whose workload another controller manages.

use std::time::Duration;

use asya_shared::resolve::{AutoscalerHandoff, FindingReason, GroupKind, ObjectRef};
use k8s_openapi::jiff::Timestamp;

use super::decision::{Bind, ContestedFields, Plan};
use super::finalizers::plan_finalizers;
use super::probe::{self, ProbeParams, ProbeStep};
use super::queue::plan_queue;
use super::rollout::inputs::{RolloutAction, RolloutDecision};
use super::rollout::params::RolloutParams;
use super::scale_from_zero::{self, ScaleFromZeroStep};
use super::scaled_object_contention::ContestedField;
use super::scaling::{self, ScalingTeardown, plan_removal, plan_scaling};
use super::scaling_children::ScalingChildren;
use super::steps::ScalingStep;
use super::template::TemplateStep;
use super::template::write::TemplateParams;
use super::{
    autoscaler_handoff, replicas, retired, rollout, scaled_object_contention, scaling_gate,
    template,
};
use crate::fault::Reason;
use crate::reconcile::contention::{FieldPurpose, SpecRevision, history};
use crate::reconcile::desired::drain::may_replace_pods;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::binding::TemplateActor;
use crate::reconcile::model::bound_pods::actor_hash;
use crate::reconcile::model::observed::{Observed, is_once_completed};
use crate::reconcile::model::outcome::ActiveOutcome;
use crate::reconcile::plan::scale_from_zero::plan_scale_up;

/// Plans an active binding.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let binding = observed.binding.as_ref();
    let mut scaling = binding.and_then(|binding| plan_scaling_step(observed, binding, now));
    if observed.actor.annotations.paused {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        return Plan::Paused(Box::new(ActiveOutcome::initial(observed, fault)));
    }
    let once_completed = is_once_completed(&observed.actor, &observed.previous);
    let mut bind = if once_completed {
        Bind {
            once_completed: true,
            rollout: plan_rollout(observed, now).filter(|it| !replaces_pods(it)),
            ..Bind::only(observed, scaling)
        }
    } else {
        let contention = scaled_object_contention::plan(observed, scaling.as_mut(), now);
        let rollout = plan_rollout(observed, now);
        let handoff = autoscaler_handoff::plan(observed, scaling.as_mut(), rollout.as_ref(), now);
        Bind {
            retired: retired::queues_to_check(observed),
            scaled_object_contention: contention,
            replicas_contention: replicas::plan(observed, scaling.as_ref(), now),
            scale_from_zero: binding.and_then(|binding| {
                plan_scale_from_zero(observed, binding, scaling.as_ref()?, rollout.as_ref())
            }),
            template: plan_template(observed, now).unwrap_or_default(),
            handoff,
            actor_annotation: plan_actor_annotation(observed),
            rollout,
            ..Bind::only(observed, scaling)
        }
    };
    bind.add_params(observed, now);
    Plan::Bind(Box::new(bind))
}

impl Bind {
    /// Plans only finalizers, queue, scaling and the dry run; the caller adds the other steps.
    fn only(observed: &Observed, scaling: Option<ScalingStep>) -> Self {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        let mut initial = ActiveOutcome::initial(observed, fault);
        if let Some(scaled) = &mut initial.scaling {
            scaled.waits_for = scaling.as_ref().and_then(ScalingStep::waits_for);
        }
        Self {
            initial,
            finalizers: plan_finalizers(observed),
            once_completed: false,
            queue: plan_queue(observed),
            scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
            scaling,
            contested: ContestedFields {
                scaled_object_key: observed.key().clone(),
                revision: SpecRevision::default(),
                scaled_object: ContestedField::ScaledObject(None),
                replicas: None,
                handoff: ContestedField::Handoff(ObjectRef::default()),
            },
            scaled_object_contention: None,
            replicas_contention: None,
            scale_from_zero: None,
            template: template::TemplateStep::default(),
            template_params: None,
            handoff: None,
            actor_annotation: None,
            probe: plan_probe(observed),
            probe_params: ProbeParams::new(observed),
            rollout: None,
            rollout_params: None,
            frees_slot: false,
            retired: Vec::new(),
        }
    }

    /// Adds the parameters of the decided steps.
    fn add_params(&mut self, observed: &Observed, now: Timestamp) {
        if matches!(
            self.template,
            TemplateStep::Apply | TemplateStep::RecordConflict
        ) {
            self.template_params = TemplateParams::new(observed);
        }
        let rollout = self.rollout.as_ref();
        self.rollout_params = rollout.map(|it| RolloutParams::new(observed, it, now));
        self.frees_slot = self.rollout.is_none() && target_is_known(observed);
        let resolved = observed.resolved();
        self.contested = ContestedFields {
            scaled_object_key: observed.key().clone(),
            revision: resolved
                .map(|it| it.revision(observed.actor.generation))
                .unwrap_or_default(),
            scaled_object: ContestedField::scaled_object(
                observed,
                self.scaled_object_contention.as_ref(),
            ),
            replicas: resolved.map(|it| ContestedField::Replicas(it.target.workload.clone())),
            handoff: ContestedField::Handoff(
                handoff_of(observed).map_or_else(ObjectRef::default, |it| it.owner.clone()),
            ),
        };
    }
}

/// Whether the target was resolved, or is not needed. If so, no planned rollout means that none is in progress.
fn target_is_known(observed: &Observed) -> bool {
    let target = observed.binding.as_ref().and_then(|it| it.target.as_ref());
    target.is_some() || observed.desired.is_err()
}

/// Whether a rollout decision replaces pods. One that does not is executed under `reconcile: Once`, too, because the
/// webhook depends on its result (FW-21).
fn replaces_pods(decision: &RolloutDecision) -> bool {
    !matches!(
        decision,
        RolloutDecision::NotNeeded | RolloutDecision::Act(RolloutAction::VerifyInjection)
    )
}

fn handoff_of(observed: &Observed) -> Option<&AutoscalerHandoff> {
    observed.resolved()?.target.scale.handoff()
}

/// Annotates each workload once, even if the annotation is removed later. Only a `Deployment` or `StatefulSet`, because
/// a custom resource may propagate annotations to its pods (BIND-47).
fn plan_actor_annotation(observed: &Observed) -> Option<ObjectRef> {
    let workload = &observed.resolved()?.target.workload;
    let GroupKind { group, kind } = workload.group_kind();
    let previous = observed.previous.resolved_target.as_ref();
    let is_known = previous.is_some_and(|it| it.uid == workload.uid);
    let is_supported = group == "apps" && matches!(kind, "Deployment" | "StatefulSet");
    (is_supported && !is_known).then(|| workload.clone())
}

fn plan_probe(observed: &Observed) -> ProbeStep {
    let probe = observed.binding.as_ref().and_then(|it| it.probe.as_ref());
    probe.map_or(ProbeStep::Skip, |probe| {
        probe::decide(probe::ProbeInputs {
            needed: probe.needed,
            requested: probe.next_probe.requested,
            wait: probe.next_probe.wait,
        })
    })
}

fn plan_rollout(observed: &Observed, now: Timestamp) -> Option<RolloutDecision> {
    let (bound, rollout, resolved) = (observed.bound()?, observed.rollout()?, observed.resolved()?);
    let counts = &rollout.pod_counts;
    if !may_replace_pods(observed.drain.as_ref(), counts.pods.injected) {
        return None;
    }
    if resolved
        .other_template_actor(&observed.actor.metadata.uid)
        .is_some()
    {
        return Some(wait_for_template_actor(
            observed.binding.as_ref()?.template_actor.as_ref(),
        ));
    }
    let (target, roll_now) = (&resolved.target, observed.actor.annotations.roll_now);
    let hash = bound.injected_hash.as_deref()?;
    let unknown = FindingReason::UnknownOwner;
    let conflicts = &observed.previous.conflicts;
    let contention = history::state(conflicts, resolved.uid()?, FieldPurpose::Roll);
    Some(rollout::decide(&rollout::inputs::RolloutInputs {
        rollout: bound.rollout,
        roll_now,
        bound: observed.previous.bound_since.is_some(),
        has_url: bound.has_url || target.server.url.is_some(),
        desired_hash: if roll_now {
            hash
        } else {
            actor_hash(Some(hash))?
        },
        outdated: counts.replaceable(roll_now),
        matched: counts.pods.matched,
        total: counts.total,
        availability: &rollout.availability,
        limit: observed.progress_limit(),
        roll: &target.roll,
        unknown_owner: target.warnings.iter().any(|it| it.reason == unknown),
        objects: &rollout.objects,
        target_spec_hash: &rollout.specs_hash,
        budget: rollout.budget.as_deref(),
        has_slot: rollout.has_slot,
        previous: observed.previous.rollout.as_ref(),
        contention: &contention,
        injection_verified: observed.is_injection_verified(),
        generation: observed.actor.generation,
        now,
    }))
}

/// Removing the other actor's sidecar from the pod template replaces the pods, so a rollout before that would restart
/// them twice (BIND-45).
fn wait_for_template_actor(owner: Option<&TemplateActor>) -> RolloutDecision {
    let owner = match owner {
        Some(TemplateActor { name, paused: true }) => format!(
            "AsyncActor {name}, which is paused and removes it once annotation asya.sh/paused is gone"
        ),
        Some(TemplateActor { name, .. }) => format!("AsyncActor {name}"),
        None => "an AsyncActor that no longer exists".to_owned(),
    };
    let text = format!(
        "the pod template of the target still contains the sidecar of {owner}; its pods are replaced when that is removed"
    );
    RolloutDecision::Wait(Reason::RolloutWaiting, text, Duration::from_secs(10))
}

/// Plans our fields of the target's pod template, or their transfer to an older actor (BIND-50).
fn plan_template(observed: &Observed, now: Timestamp) -> Option<template::TemplateStep> {
    if let Some(template_transfer) = observed
        .binding
        .as_ref()
        .and_then(|it| it.template_transfer.as_ref())
    {
        return Some(template::plan_transfer(template_transfer));
    }
    let (bound, resolved) = (observed.bound()?, observed.resolved()?);
    let previous = &observed.previous;
    let target = &resolved.target;
    let has_url = bound.has_url || target.server.url.is_some();
    let contention = history::state(&previous.conflicts, resolved.uid()?, FieldPurpose::Template);
    let uid = &observed.actor.metadata.uid;
    let owned = resolved
        .owned_template_fields
        .as_ref()
        .filter(|it| it.may_belong_to(uid));
    Some(template::decide(&template::TemplateInputs {
        desired: bound.template_plan.is_some() && previous.bound_since.is_some() && has_url,
        owner: target.owner.as_ref(),
        workload: &target.workload,
        hash: bound.injected_hash.as_deref()?,
        roll_now: observed.actor.annotations.roll_now,
        target_spec_hash: &resolved.spec_hash,
        owned: owned.map(|it| &*it.fingerprint),
        previous: previous.template.as_ref(),
        contention: &contention,
        generation: observed.actor.generation,
        now,
    }))
}

/// Scales the target up once KEDA no longer scales it, because no HPA scales a workload up from zero. Only a target
/// that, according to status, the queue has scaled (SO-6).
fn plan_scale_from_zero(
    observed: &Observed,
    binding: &ObservedBinding,
    scaling: &ScalingStep,
    rollout: Option<&RolloutDecision>,
) -> Option<ScaleFromZeroStep> {
    let ScalingStep::Disabled(ScalingTeardown {
        completed: true, ..
    }) = scaling
    else {
        return None;
    };
    let resolved = binding.target.as_ref()?.as_ref().ok()?;
    let scale_up = plan_scale_up(observed, resolved.target.scale.object()?)?;
    let probe_result = observed.probe_result();
    let inputs = scale_from_zero::ScaleFromZeroInputs {
        handoff: handoff_of(observed),
        rollout,
        probe_result: probe_result.as_ref(),
        runs_probe: plan_probe(observed) == ProbeStep::Run,
    };
    Some(scale_from_zero::decide(&inputs, scale_up))
}

/// Plans scaling of the object that the target resolves to, as long as it exists (SO-1).
fn plan_scaling_step(
    observed: &Observed,
    binding: &ObservedBinding,
    now: Timestamp,
) -> Option<ScalingStep> {
    let keda = &observed.scaling;
    let removal = || plan_removal(&keda.scaled_object, &keda.trigger_authentication, now);
    if !observed.bound()?.scales || target_is_unusable(binding) {
        return Some(ScalingStep::Disabled(removal()));
    }
    let scaling = match binding.scaling.as_ref()? {
        Ok(scaling) => scaling,
        Err(fault) => return Some(ScalingStep::Blocked(removal(), fault.clone())),
    };
    let handoff = autoscaler_handoff::evaluate(observed, handoff_of(observed));
    if let Some(fault) = handoff.fault {
        return Some(ScalingStep::Blocked(removal(), fault));
    }
    let blocked_by = scaling_gate::of(observed, binding);
    let mut plan = plan_scaling(&scaling::ScalingInputs {
        actor: &observed.key().name,
        desired: scaling.objects.as_ref(),
        installed: keda.installed,
        target: &scaling.target,
        target_exists: !handoff.is_pending && blocked_by.is_none(),
        scaled_object: &keda.scaled_object,
        trigger_authentication: &keda.trigger_authentication,
        hpas: &handoff.other_hpas,
        scaled_objects: &keda.scaled_objects,
        inventory: &observed.previous.inventory,
    });
    plan.waits_for = blocked_by.filter(|_| plan.fault.is_none());
    Some(ScalingStep::Enabled(plan))
}

/// Whether the target is known to be deleted, unsupported or bound by another actor, so that a `ScaledObject` would do
/// harm. A target that merely cannot be read keeps it (BIND-42).
fn target_is_unusable(binding: &ObservedBinding) -> bool {
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
