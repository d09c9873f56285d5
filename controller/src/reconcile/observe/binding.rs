//! Observes a binding: its target and the target's pods.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingStrategy, WorkloadRef};
use asya_shared::probe::{ProbeMetadata, minimal_pod};
use asya_shared::resolve::{
    self, Finding, FindingReason, Integration, PodMatch, Resolution, Scale, Target,
};
use serde_json::Value;

use super::rollout::{self, RolloutQuery};
use super::shared_target;
use super::target_faults::{already_bound_fault, forbidden_fault, kind_fault, unindexed_fault};
use super::unbinding::{self, LeftBehind};
use crate::binding::{TargetSnapshot, TargetState};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason};
use crate::reconcile::contention::ContestedPart;
use crate::reconcile::desired::{Desired, DesiredBinding};
use crate::reconcile::injection::InjectionInputs;
use crate::reconcile::model::binding::{
    ObservedBinding, ObservedInjection, ObservedProbe, RefusedBinding, Resolved, ResolvedBinding,
    ResourceNames, TargetScaling,
};
use crate::reconcile::model::target_pods::{TargetPodCounts, TargetPods, actor_hash};
use crate::reconcile::model::template_handoff::TemplateHandoff;
use crate::record::{ActorRecord, AutoscalerTarget};

/// Retry interval while quotas are not listed. The watch does not report a list that RBAC forbids.
const QUOTAS_UNSYNCED_RETRY: Duration = Duration::from_secs(1);

/// Observes the target and its pods or, for an actor being deleted, what is left to clean up; returns `None` for a
/// standalone actor.
pub(super) async fn observe(
    context: &Context,
    actor: &ActorRecord,
    desired: Result<&Desired, &Fault>,
    previous: &AsyncActorStatus,
    left_behind: Option<LeftBehind>,
) -> Result<Option<ObservedBinding>, Error> {
    let Some(target_ref) = &actor.binds_to else {
        return Ok(None);
    };
    if let Some(left_behind) = left_behind {
        // Not from the desired state, which is an error while the transport is not configured, for example.
        let rollout = actor.deletion.rollout;
        let annotated = &previous.roll_annotations;
        let unbinding = unbinding::observe(context, actor, left_behind, rollout, annotated).await?;
        return Ok(Some(ObservedBinding::Unbinding(unbinding.map(Box::new))));
    }
    let Ok(desired) = desired else {
        return Ok(Some(ObservedBinding::Unknown));
    };
    let Some(bound) = desired.desired_binding() else {
        return Ok(Some(ObservedBinding::Unknown));
    };
    let observer = Observer {
        context,
        actor,
        target_ref,
        desired,
        bound,
        previous,
    };
    observer.observe().await.map(Some)
}

/// Observes the target of an active actor.
struct Observer<'a> {
    context: &'a Context,
    actor: &'a ActorRecord,
    target_ref: &'a WorkloadRef,
    desired: &'a Desired,
    bound: &'a DesiredBinding,
    previous: &'a AsyncActorStatus,
}

impl Observer<'_> {
    async fn observe(&self) -> Result<ObservedBinding, Error> {
        let target = match &self.bound.namespace_fault {
            Some(fault) => TargetResolution::Refused(fault.clone()),
            None => resolve_target(self.context, self.actor).await?,
        };
        Ok(match target {
            TargetResolution::NotSynced => ObservedBinding::Unknown,
            TargetResolution::Refused(fault) => {
                ObservedBinding::Refused(Box::new(self.refused(fault).await?))
            }
            TargetResolution::Resolved(target) => {
                ObservedBinding::Resolved(Box::new(self.resolved(*target).await?))
            }
        })
    }

    async fn refused(&self, fault: Fault) -> Result<RefusedBinding, Error> {
        let may_appear = matches!(
            fault.reason,
            Reason::TargetNotFound | Reason::TargetNotReady | Reason::TargetStopped
        );
        let pods = if may_appear {
            let expected = resolve::pods_of(self.target_ref, None);
            target_pods(self.context, self.actor, &expected)
        } else {
            // `AlreadyBound` and similar faults: none of the pods belong to this actor.
            Some(TargetPods::default())
        };
        let limits = self.limits();
        let may_have_url = matches!(
            fault.reason,
            Reason::TargetNotFound | Reason::TargetNotReady
        );
        let counted = self.count(pods.as_ref());
        let mut probe = counted.and_then(|it| self.probe(may_have_url, &it, limits.as_ref()));
        if let Some(probe) = &mut probe {
            probe.pod = self.minimal_pod();
        }
        let template_handoff = if fault.reason == Reason::AlreadyBound {
            shared_target::observe_template_handoff(self.context, self.actor, self.previous).await?
        } else {
            None
        };
        Ok(RefusedBinding {
            fault,
            injection: self.injection(pods, probe, limits, template_handoff),
        })
    }

    async fn resolved(&self, target: Resolved) -> Result<ResolvedBinding, Error> {
        let pods = target_pods(self.context, self.actor, &target.target.pods);
        let limits = self.limits();
        let counted = self.count(pods.as_ref());
        let has_url = self.bound.has_url || target.target.server.url.is_some();
        let mut probe = counted
            .as_ref()
            .and_then(|it| self.probe(has_url, it, limits.as_ref()));
        let rollout = match (&pods, counted) {
            (Some(pods), Some(counted)) if self.may_replace_pods() => {
                let query = RolloutQuery {
                    bound: self.bound,
                    injection_verified: is_injection_verified(self.bound, self.previous),
                    probe_due: probe.as_ref().is_some_and(ObservedProbe::is_due),
                    resolved: &target,
                    pods,
                };
                Some(rollout::observe(self.context, self.actor, query, counted).await?)
            }
            _ => None,
        };
        if let Some(probe) = probe.as_mut().filter(|_| rollout.is_none()) {
            probe.pod = self.minimal_pod();
        }
        let template_actor = shared_target::template_actor(self.context, self.actor, &target);
        // With strategy Template, the next apply replaces the stale fields of a deleted actor.
        let is_stale = self.bound.strategy == BindingStrategy::Pod && template_actor.is_none();
        let template_handoff = if is_stale {
            let context = self.context;
            let actor = self.actor;
            shared_target::observe_stale_fields(context, actor, self.previous, &target).await?
        } else {
            None
        };
        Ok(ResolvedBinding {
            injection: self.injection(pods, probe, limits, template_handoff),
            template_actor,
            rollout,
            scaling: target_scaling(self.actor, self.previous, self.desired, &target),
            target,
        })
    }

    fn limits(&self) -> Option<ResourceNames> {
        let constraints = &self.context.bindings.constraints;
        constraints.limits(&self.actor.metadata.key.namespace)
    }

    fn injection(
        &self,
        pods: Option<TargetPods>,
        probe: Option<ObservedProbe>,
        limits: Option<ResourceNames>,
        template_handoff: Option<TemplateHandoff>,
    ) -> ObservedInjection {
        let unenforced = &self.context.bindings.unenforced_required;
        ObservedInjection {
            pods,
            template_handoff,
            enforcement: unenforced.enforcement(&self.actor.metadata.key),
            probe,
            limits,
        }
    }

    fn count(&self, pods: Option<&TargetPods>) -> Option<TargetPodCounts> {
        let since = self.previous.bound_since.as_ref();
        let uid = &self.actor.metadata.uid;
        Some(TargetPodCounts::of(pods?, uid, self.bound, since))
    }

    /// Whether existing pods are ours to replace. Requires `boundSince`: the webhook learns of a binding from its
    /// status.
    fn may_replace_pods(&self) -> bool {
        self.bound.strategy == BindingStrategy::Pod
            && self.previous.bound_since.is_some()
            && !self.actor.annotations.paused
    }

    /// Dry-run state; `None` if a dry run would show nothing.
    fn probe(
        &self,
        has_url: bool,
        counted: &TargetPodCounts,
        limits: Option<&ResourceNames>,
    ) -> Option<ObservedProbe> {
        if !self.may_replace_pods() || !has_url || !self.context.installation.webhook {
            return None;
        }
        let inputs = InjectionInputs {
            previous: self.previous.injection.as_ref(),
            hash: self.bound.injected_hash.as_deref()?,
            generation: self.actor.generation,
            limits,
            injected: counted.current > 0,
            injected_for_any_actor: counted.injected_for_any_actor > 0,
        };
        let schedule = &self.context.bindings.probe_schedule;
        let mut next_probe = schedule.next_probe(&self.actor.metadata.key);
        if limits.is_none() {
            next_probe.wait = next_probe.wait.max(Some(QUOTAS_UNSYNCED_RETRY));
        }
        Some(ObservedProbe {
            needed: limits.is_none() || inputs.needs_probe(),
            next_probe,
            pod: None,
        })
    }

    /// A pod for a dry run, built from the target's kind and name alone.
    fn minimal_pod(&self) -> Option<Value> {
        let pods = resolve::pods_of(self.target_ref, None);
        let metadata = ProbeMetadata::of(&pods, Integration::of_target(self.target_ref));
        metadata.as_ref().and_then(minimal_pod)
    }
}

/// Whether a dry run showed that pods with the current actor hash are admitted.
fn is_injection_verified(bound: &DesiredBinding, previous: &AsyncActorStatus) -> bool {
    let injection = previous.injection.as_ref();
    let hash = actor_hash(bound.injected_hash.as_deref());
    hash.is_some() && injection.and_then(|it| it.verified_actor_hash.as_deref()) == hash
}

/// How the actor's queue scales the target while scaling is on. A target that cannot be scaled is still bound (SO-4).
pub fn target_scaling(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    desired: &Desired,
    resolved: &Resolved,
) -> Option<Result<TargetScaling, Fault>> {
    let scaled = match &resolved.target.scale {
        Scale::Object(scaled) | Scale::HandedOff(scaled, _) => scaled,
        Scale::Refused(why) => {
            desired.spec.effective_scaling()?;
            let why = why.clone();
            return Some(Err(Fault::until_change(Reason::ScalingNotSupported, why)));
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
    Some(Ok(TargetScaling {
        target: AutoscalerTarget {
            group: scaled.group_kind().group.into(),
            kind: (&*scaled.kind).into(),
            name: (&*scaled.name).into(),
        },
        objects,
    }))
}

/// Result of resolving a target.
enum TargetResolution {
    /// Not possible yet.
    NotSynced,
    Refused(Fault),
    Resolved(Box<Resolved>),
}

async fn resolve_target(context: &Context, actor: &ActorRecord) -> Result<TargetResolution, Error> {
    let key = &actor.metadata.key;
    let bindings = &context.bindings;
    let Some(target) = bindings.target_of(key) else {
        return Ok(TargetResolution::Refused(unindexed_fault()));
    };
    let state = bindings.read_target(&context.client, &target);
    let snapshot = match state.await.map_err(Error::Api)? {
        TargetState::NotSynced => return Ok(TargetResolution::NotSynced),
        TargetState::Present(snapshot) => Some(snapshot),
        TargetState::KindUnavailable(availability) => {
            let fault = kind_fault(&target, &availability);
            return Ok(TargetResolution::Refused(fault));
        }
        TargetState::NotFound => None,
    };
    let chain = snapshot.as_ref().map(|snapshot| chain(snapshot));
    bindings.register_target(key, chain.unwrap_or_default());
    if let Some(recipient) = bindings.older_binding(key) {
        let fault = already_bound_fault(&target, &recipient.name);
        return Ok(TargetResolution::Refused(fault));
    }
    Ok(match snapshot {
        Some(snapshot) => resolution_of(&snapshot),
        None => TargetResolution::Refused(Fault::until_change(
            Reason::TargetNotFound,
            format!(
                "spec.workloadRef: {} {} does not exist; the actor binds to it once it is created",
                target.kind.group_kind().kind,
                target.key.name
            ),
        )),
    })
}

fn resolution_of(snapshot: &TargetSnapshot) -> TargetResolution {
    match (&snapshot.resolution, &snapshot.forbidden_kind) {
        (Resolution::Found(target), _) => TargetResolution::Resolved(Box::new(Resolved {
            target: Target::clone(target),
            replicas: snapshot.replicas,
            spec_hash: snapshot.spec_hash.clone(),
            our_template_fields: snapshot.our_template_fields.clone(),
        })),
        (Resolution::Waiting(_), Some(forbidden)) => {
            let fault = forbidden_fault(&forbidden.kind, &forbidden.missing_rule);
            TargetResolution::Refused(fault)
        }
        (Resolution::Waiting(finding) | Resolution::Refused(finding), _) => {
            TargetResolution::Refused(Fault::from(finding.clone()))
        }
    }
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
        .matching(&key.namespace, expected)?;
    // Count pods labelled for any actor (SAFE-18).
    let mut labelled = context
        .bindings
        .labelled_pods
        .matching(&key.namespace, expected)?;
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
            FindingReason::TargetNotReady => Reason::TargetNotReady,
        };
        Self::until_change(reason, finding.message)
    }
}
