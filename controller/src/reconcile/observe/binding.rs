//! Observes a binding: its target and the target's pods.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingRollout, BindingStrategy};
use asya_shared::probe::{ProbeMetadata, minimal_pod};
use asya_shared::resolve::{
    self, Finding, FindingReason, Integration, PodMatch, Resolution, Scale, Target,
};

use super::rollout::{self, RolloutQuery};
use super::target_faults::{already_bound_fault, forbidden_fault, kind_fault, unindexed_fault};
use super::{shared_target, unbinding};
use crate::binding::{TargetSnapshot, TargetState};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason};
use crate::reconcile::contention::ContestedPart;
use crate::reconcile::desired::{Desired, DesiredBinding};
use crate::reconcile::injection::InjectionInputs;
use crate::reconcile::model::binding::{
    ObservedBinding, ObservedProbe, Resolved, ResourceNames, TargetScaling,
};
use crate::reconcile::model::observed::DeletionSettings;
use crate::reconcile::model::target_pods::{TargetPodCounts, TargetPods, actor_hash};
use crate::record::{ActorRecord, ScaleTarget};

/// Retry interval while quotas are not listed. The watch does not report a list that RBAC forbids.
const QUOTAS_UNSYNCED_RETRY: Duration = Duration::from_secs(1);

/// Observes the target and its pods or, for an actor being deleted, what is left to clean up; returns `None` for a
/// standalone actor.
pub(super) async fn observe(
    context: &Context,
    actor: &ActorRecord,
    desired: Result<&Desired, &Fault>,
    previous: &AsyncActorStatus,
    deletion: Option<&DeletionSettings>,
) -> Result<Option<ObservedBinding>, Error> {
    let Some(binds_to) = &actor.binds_to else {
        return Ok(None);
    };
    let bound = desired.ok().and_then(Desired::desired_binding);
    if let Some(deletion) = deletion {
        let rollout = bound.map_or(BindingRollout::Always, |bound| bound.rollout);
        return Ok(Some(ObservedBinding {
            unbinding: unbinding::observe(
                context,
                actor,
                deletion,
                rollout,
                &previous.roll_annotations,
            )
            .await?,
            ..ObservedBinding::default()
        }));
    }
    let (Ok(desired), Some(bound)) = (desired, bound) else {
        return Ok(Some(ObservedBinding::default()));
    };
    let target = match &bound.namespace_fault {
        Some(fault) => Some(Err(fault.clone())),
        None => resolve_target(context, actor).await?,
    };
    let Some(target) = target else {
        return Ok(Some(ObservedBinding::default()));
    };
    let expected = match &target {
        Ok(resolved) => Some(resolved.target.pods.clone()),
        // `AlreadyBound` and similar faults: none of the pods belong to this actor.
        Err(fault)
            if !matches!(
                fault.reason,
                Reason::TargetNotFound | Reason::TargetNotReady | Reason::TargetStopped
            ) =>
        {
            None
        }
        Err(_) => Some(resolve::pods_of(binds_to, None)),
    };
    let pods = match expected {
        Some(expected) => target_pods(context, actor, &expected),
        None => Some(TargetPods::default()),
    };
    let limits = context
        .bindings
        .constraints
        .limits(&actor.metadata.key.namespace);
    let uid = &actor.metadata.uid;
    let since = previous.bound_since.as_ref();
    let counted = pods
        .as_ref()
        .map(|pods| TargetPodCounts::of(pods, uid, bound, since));
    let mut probe = counted.as_ref().and_then(|counted| {
        let (target, limits) = (target.as_deref(), limits.as_ref());
        observe_probe(context, actor, bound, previous, target, counted, limits)
    });
    let rollout = match (&target, &pods, counted) {
        (Ok(resolved), Some(pods), Some(counted)) if may_replace_pods(actor, bound, previous) => {
            let query = RolloutQuery {
                rollout: bound.rollout,
                injection_verified: is_injection_verified(bound, previous),
                probe_due: probe.as_ref().is_some_and(ObservedProbe::is_due),
                resolved,
                pods,
            };
            Some(rollout::observe(context, actor, query, counted).await?)
        }
        _ => None,
    };
    if let Some(probe) = probe.as_mut().filter(|_| rollout.is_none()) {
        // The target does not exist, so the pod is built from its kind and name alone.
        let probe_metadata = ProbeMetadata::of(
            &resolve::pods_of(binds_to, None),
            Integration::of_target(binds_to),
        );
        probe.pod = probe_metadata.as_ref().and_then(minimal_pod);
    }
    let (template_actor, template_handoff) =
        shared_target::observe(context, actor, bound.strategy, previous, &target).await?;
    Ok(Some(ObservedBinding {
        pods,
        template_handoff,
        template_actor,
        probe,
        limits,
        enforcement: context
            .bindings
            .unenforced_required
            .enforcement(&actor.metadata.key),
        scaling: target
            .as_ref()
            .ok()
            .and_then(|resolved| target_scaling(actor, previous, desired, resolved)),
        target: Some(target),
        rollout,
        unbinding: None,
    }))
}

/// Whether existing pods are ours to replace. Requires `boundSince`: the webhook learns of a binding from its status.
fn may_replace_pods(
    actor: &ActorRecord,
    bound: &DesiredBinding,
    previous: &AsyncActorStatus,
) -> bool {
    bound.strategy == BindingStrategy::Pod
        && previous.bound_since.is_some()
        && !actor.annotations.paused
}

/// Whether a dry run showed that pods with the current actor hash are admitted.
fn is_injection_verified(bound: &DesiredBinding, previous: &AsyncActorStatus) -> bool {
    let injection = previous.injection.as_ref();
    let hash = actor_hash(bound.injected_hash.as_deref());
    hash.is_some() && injection.and_then(|it| it.verified_actor_hash.as_deref()) == hash
}

/// Dry-run state; `None` if a dry run could show nothing.
fn observe_probe(
    context: &Context,
    actor: &ActorRecord,
    bound: &DesiredBinding,
    previous: &AsyncActorStatus,
    target: Result<&Resolved, &Fault>,
    counted: &TargetPodCounts,
    limits: Option<&ResourceNames>,
) -> Option<ObservedProbe> {
    let has_url = match target {
        Ok(resolved) => bound.has_url || resolved.target.server.url.is_some(),
        Err(fault) => matches!(
            fault.reason,
            Reason::TargetNotFound | Reason::TargetNotReady
        ),
    };
    if !may_replace_pods(actor, bound, previous) || !has_url || !context.installation.webhook {
        return None;
    }
    let inputs = InjectionInputs {
        previous: previous.injection.as_ref(),
        hash: bound.injected_hash.as_deref()?,
        generation: actor.generation,
        limits,
        injected: counted.current > 0,
        injected_for_any_actor: counted.injected_for_any_actor > 0,
    };
    let mut next_probe = context
        .bindings
        .probe_schedule
        .next_probe(&actor.metadata.key);
    if limits.is_none() {
        next_probe.wait = next_probe.wait.max(Some(QUOTAS_UNSYNCED_RETRY));
    }
    Some(ObservedProbe {
        needed: limits.is_none() || inputs.needs_probe(),
        next_probe,
        pod: None,
    })
}

/// How the actor's queue scales the target while scaling is on. A target that cannot be scaled is still bound (SO-4).
pub fn target_scaling(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    desired: &Desired,
    resolved: &Resolved,
) -> Option<Result<Box<TargetScaling>, Fault>> {
    let scaled = match &resolved.target.scale {
        Scale::Object(scaled) | Scale::HandedOff(scaled, _) => scaled,
        Scale::Refused(finding) => {
            desired.spec.effective_scaling()?;
            let text = finding.message.clone();
            return Some(Err(Fault::until_change(Reason::ScalingNotSupported, text)));
        }
    };
    let scale_target = asya_shared::scaling::ScaleTarget {
        api_version: &scaled.api_version,
        kind: &scaled.kind,
        name: &scaled.name,
    };
    let mut objects = desired.scaling_objects(actor, previous, scale_target)?;
    let history = resolved.contention_history(previous, actor.generation);
    if let Ok(objects) = &mut objects
        && history.is_some_and(|it| it.is_yielded(ContestedPart::Replicas))
    {
        objects.pause();
    }
    Some(Ok(Box::new(TargetScaling {
        target: ScaleTarget {
            group: scaled.group_kind().group.into(),
            kind: (&*scaled.kind).into(),
            name: (&*scaled.name).into(),
        },
        objects,
    })))
}

/// Resolves the target; `None` while that is not possible yet.
async fn resolve_target(
    context: &Context,
    actor: &ActorRecord,
) -> Result<Option<Result<Box<Resolved>, Fault>>, Error> {
    let (key, bindings) = (&actor.metadata.key, &context.bindings);
    let Some(target) = bindings.target_of(key) else {
        return Ok(Some(Err(unindexed_fault())));
    };
    let state = bindings.read_target(&context.client, &target);
    let snapshot = match state.await.map_err(Error::Api)? {
        TargetState::NotSynced => return Ok(None),
        TargetState::Present(snapshot) => Some(snapshot),
        TargetState::KindUnavailable(availability) => {
            return Ok(Some(Err(kind_fault(&target, &availability))));
        }
        TargetState::NotFound => None,
    };
    let chain = snapshot.as_ref().map(|snapshot| chain(snapshot));
    bindings.register_target(key, chain.unwrap_or_default());
    if let Some(recipient) = bindings.older_binding(key) {
        return Ok(Some(Err(already_bound_fault(&target, &recipient.name))));
    }
    let Some(snapshot) = snapshot else {
        return Ok(Some(Err(Fault::until_change(
            Reason::TargetNotFound,
            format!(
                "spec.workloadRef: {} {} does not exist; the actor binds to it once it is created",
                target.kind.group_kind().kind,
                target.key.name
            ),
        ))));
    };
    Ok(Some(
        match (&snapshot.resolution, &snapshot.forbidden_kind) {
            (Resolution::Found(resolved), _) => Ok(Box::new(Resolved {
                target: Target::clone(resolved),
                replicas: snapshot.replicas,
                spec_hash: snapshot.spec_hash.clone(),
                owned_template_fields: snapshot.owned_template_fields.clone(),
            })),
            (Resolution::Waiting(_), Some((kind, rule))) => Err(forbidden_fault(kind, rule)),
            (Resolution::Waiting(finding) | Resolution::Refused(finding), _) => {
                Err(Fault::from(finding.clone()))
            }
        },
    ))
}

/// UIDs from the target down to its workloads.
fn chain(snapshot: &TargetSnapshot) -> Vec<Box<str>> {
    let mut chain = vec![snapshot.uid.clone()];
    if let Resolution::Found(target) = &snapshot.resolution {
        let below = target.chain.iter().filter_map(|it| it.uid.as_deref());
        chain.extend(below.filter(|uid| **uid != *snapshot.uid).map(Box::from));
    }
    chain
}

pub(super) fn target_pods(
    context: &Context,
    actor: &ActorRecord,
    expected: &PodMatch,
) -> Option<TargetPods> {
    let key = &actor.metadata.key;
    context.bindings.set_pod_match(key, expected);
    let uninjected = context
        .bindings
        .uninjected_pods
        .of(&key.namespace, expected)?;
    // Count pods labelled for any actor (SAFE-18).
    let mut labelled = context
        .bindings
        .labelled_pods
        .of(&key.namespace, expected)?;
    labelled.retain(|pod| !pod.finished);
    for pod in &mut labelled {
        context.stores.mount_failures.add_problem_to(pod);
    }
    Some(TargetPods {
        labelled,
        uninjected,
    })
}

impl From<Finding> for Fault {
    fn from(finding: Finding) -> Self {
        let reason = match finding.reason {
            FindingReason::TargetNotFound => Reason::TargetNotFound,
            FindingReason::TargetStopped => Reason::TargetStopped,
            FindingReason::KindNotInstalled => Reason::KindNotInstalled,
            FindingReason::KindForbidden => Reason::KindForbidden,
            FindingReason::UnsupportedTarget => Reason::UnsupportedTarget,
            FindingReason::Ambiguous => Reason::Ambiguous,
            FindingReason::TargetNotReady
            | FindingReason::ScalingNotSupported
            | FindingReason::HasOwner
            | FindingReason::UnknownOwner
            | FindingReason::ScalingCaveat
            | FindingReason::BindingCaveat => Reason::TargetNotReady,
        };
        Self::until_change(reason, finding.message)
    }
}
