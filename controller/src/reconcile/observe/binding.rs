//! Observes a binding: its target and the target's pods.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingRollout, BindingStrategy};
use asya_shared::resolve::{
    self, Family, Finding, FindingReason, PodMatch, Resolution, Scale, Target,
};

use super::rollout::{self, RolloutQuery};
use super::{shared_target, unbinding};
use crate::binding::kinds::Kind;
use crate::binding::probe_pod::least_of;
use crate::binding::specimen::Specimen;
use crate::binding::{Found, KindAvailability, Object, Reading};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason};
use crate::reconcile::contention::{Part, State, history};
use crate::reconcile::desired::{Bound, Desired};
use crate::reconcile::injection::Known;
use crate::reconcile::model::binding::{BindingSeen, Limits, ProbeSeen, Resolved, ScalingOfTarget};
use crate::reconcile::model::bound_pods::{BoundPods, Counted, actor_part};
use crate::reconcile::model::observed::DeletionPolicy;
use crate::record::{ActorRecord, ScaleTarget};

/// Retry interval while quotas are not listed. The watch does not report a list that RBAC forbids.
const UNLISTED: Duration = Duration::from_secs(1);

/// Observes the target and its pods, or what `unbinds` has still to clean up; returns `None` for a standalone actor.
pub(super) async fn see(
    context: &Context,
    actor: &ActorRecord,
    desired: Result<&Desired, &Fault>,
    previous: &AsyncActorStatus,
    unbinds: Option<&DeletionPolicy>,
) -> Result<Option<BindingSeen>, Error> {
    let Some(binds_to) = &actor.binds_to else {
        return Ok(None);
    };
    let bound = desired.ok().and_then(Desired::bound);
    if let Some(deletion) = unbinds {
        let rollout = bound.map_or(BindingRollout::Always, |bound| bound.rollout);
        return Ok(Some(BindingSeen {
            unbinding: unbinding::see(
                context,
                actor,
                (deletion, rollout),
                &previous.roll_annotations,
            )
            .await?,
            ..BindingSeen::default()
        }));
    }
    let (Ok(desired), Some(bound)) = (desired, bound) else {
        return Ok(Some(BindingSeen::default()));
    };
    let target = match &bound.misplaced {
        Some(fault) => Some(Err(fault.clone())),
        None => target(context, actor).await?,
    };
    let Some(target) = target else {
        return Ok(Some(BindingSeen::default()));
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
        Some(expected) => pods(context, actor, &expected),
        None => Some(BoundPods::default()),
    };
    let limits = context
        .bindings
        .constraints
        .limits(&actor.metadata.key.namespace);
    let uid = &actor.metadata.uid;
    let hash = bound.injected_hash.as_deref();
    let counted = pods
        .as_ref()
        .map(|pods| Counted::of(pods, uid, hash, previous.bound_since.as_ref()));
    let mut probe = counted.as_ref().and_then(|counted| {
        let counted = (counted, limits.as_ref());
        probe_seen(context, actor, bound, previous, target.as_deref(), counted)
    });
    let rollout = match (&target, &pods, counted) {
        (Ok(resolved), Some(pods), Some(counted)) if is_rolled(actor, bound, previous) => {
            let asked = RolloutQuery {
                rollout: bound.rollout,
                proved: is_proved(bound, previous),
                due: probe.as_ref().is_some_and(ProbeSeen::is_due),
                resolved,
                pods,
            };
            Some(rollout::see(context, actor, asked, counted).await?)
        }
        _ => None,
    };
    if let Some(probe) = probe.as_mut().filter(|_| rollout.is_none()) {
        // The target does not exist, so the pod is built from the naming convention alone.
        let specimen = Specimen::of(
            &resolve::pods_of(binds_to, None),
            Family::of_target(binds_to),
        );
        probe.pod = specimen.as_ref().and_then(least_of);
    }
    let owner = (actor, bound.strategy, previous);
    let (part_of, ceded) = shared_target::see(context, owner, &target).await?;
    Ok(Some(BindingSeen {
        pods,
        ceded,
        part_of,
        probe,
        limits,
        not_enforced: context.bindings.unenforced.has(&actor.metadata.key),
        scaling: target
            .as_ref()
            .ok()
            .and_then(|resolved| scaling_of(actor, previous, desired, resolved)),
        target: Some(target),
        rollout,
        unbinding: None,
    }))
}

/// Whether existing pods are ours to replace. Requires `boundSince`: the webhook learns of a binding from its status.
fn is_rolled(actor: &ActorRecord, bound: &Bound, previous: &AsyncActorStatus) -> bool {
    bound.strategy == BindingStrategy::Pod
        && previous.bound_since.is_some()
        && !actor.annotations.paused
}

/// Whether a dry run showed that pods with the current actor part are admitted.
fn is_proved(bound: &Bound, previous: &AsyncActorStatus) -> bool {
    let injection = previous.injection.as_ref();
    let part = actor_part(bound.injected_hash.as_deref());
    part.is_some() && injection.and_then(|it| it.proved.as_deref()) == part
}

/// Dry-run state; `None` if a dry run could prove nothing.
fn probe_seen(
    context: &Context,
    actor: &ActorRecord,
    bound: &Bound,
    previous: &AsyncActorStatus,
    target: Result<&Resolved, &Fault>,
    (counted, limits): (&Counted, Option<&Limits>),
) -> Option<ProbeSeen> {
    let has_url = match target {
        Ok(resolved) => bound.has_url || resolved.target.server.url.is_some(),
        Err(fault) => matches!(
            fault.reason,
            Reason::TargetNotFound | Reason::TargetNotReady
        ),
    };
    if !is_rolled(actor, bound, previous) || !has_url || !context.installation.webhook {
        return None;
    }
    let known = Known {
        before: previous.injection.as_ref(),
        hash: bound.injected_hash.as_deref()?,
        generation: actor.generation,
        limits,
        injected: counted.current > 0,
        admitted: counted.admitted > 0,
    };
    let mut turn = context.bindings.probes.turn(&actor.metadata.key);
    if limits.is_none() {
        turn.wait = turn.wait.max(Some(UNLISTED));
    }
    Some(ProbeSeen {
        wanted: limits.is_none() || known.wants_probe(),
        turn,
        pod: None,
    })
}

/// How the actor's queue scales the target while scaling is on. A target that cannot be scaled is still bound (SO-4).
pub fn scaling_of(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    desired: &Desired,
    resolved: &Resolved,
) -> Option<Result<Box<ScalingOfTarget>, Fault>> {
    let scaled = match &resolved.target.scale {
        Scale::Object(scaled) | Scale::Claimed(scaled, _) => scaled,
        Scale::Refused(finding) => {
            desired.spec.scaling_in_force()?;
            let text = finding.message.clone();
            return Some(Err(Fault::until_change(Reason::ScalingNotSupported, text)));
        }
    };
    let keda = asya_shared::scaling::ScaleTarget {
        api_version: &scaled.api_version,
        kind: &scaled.kind,
        name: &scaled.name,
    };
    let mut objects = desired.scaling_of(actor, previous, keda)?;
    let given_up = State::Stopped(resolved.specs(actor.generation));
    let uid = resolved.uid().unwrap_or_default();
    if let Ok(objects) = &mut objects
        && history::state(&previous.conflicts, uid, Part::Replicas) == given_up
    {
        objects.pause();
    }
    Some(Ok(Box::new(ScalingOfTarget {
        target: ScaleTarget {
            group: scaled.group_kind().group.into(),
            kind: (&*scaled.kind).into(),
            name: (&*scaled.name).into(),
        },
        objects,
    })))
}

/// Resolves the target; `None` while that is not possible yet.
async fn target(
    context: &Context,
    actor: &ActorRecord,
) -> Result<Option<Result<Box<Resolved>, Fault>>, Error> {
    let (key, bindings) = (&actor.metadata.key, &context.bindings);
    let Some(target) = bindings.target_of(key) else {
        return Ok(Some(Err(not_known())));
    };
    let found = bindings.read(&context.client, &target);
    let reading = match found.await.map_err(Error::Api)? {
        Found::NotYet => return Ok(None),
        Found::Read(reading) => Some(reading),
        Found::OfKind(standing) => return Ok(Some(Err(of_kind(&target, &standing)))),
        Found::Absent => None,
    };
    let chain = reading.as_ref().map(|reading| chain(reading));
    bindings.register_target(key, chain.unwrap_or_default());
    if let Some(owner) = bindings.owner_before(key) {
        return Ok(Some(Err(already_bound(&target, &owner.name))));
    }
    let Some(reading) = reading else {
        return Ok(Some(Err(Fault::until_change(
            Reason::TargetNotFound,
            format!(
                "spec.workloadRef: {} {} does not exist; it is bound when it is created",
                target.kind.names().kind,
                target.key.name
            ),
        ))));
    };
    Ok(Some(match (&reading.resolution, &reading.refused) {
        (Resolution::Found(found), _) => Ok(Box::new(Resolved {
            target: Target::clone(found),
            replicas: reading.replicas,
            spec: reading.spec.clone(),
            templated: reading.templated.clone(),
        })),
        (Resolution::Waiting(_), Some((kind, rule))) => Err(forbidden(kind, rule)),
        (Resolution::Waiting(finding) | Resolution::Refused(finding), _) => {
            Err(Fault::from(finding.clone()))
        }
    }))
}

/// The uids from the target down to its workloads.
fn chain(reading: &Reading) -> Vec<Box<str>> {
    let mut chain = vec![reading.uid.clone()];
    if let Resolution::Found(target) = &reading.resolution {
        let below = target.chain.iter().filter_map(|it| it.uid.as_deref());
        chain.extend(below.filter(|uid| **uid != *reading.uid).map(Box::from));
    }
    chain
}

/// Fault for a kind that cannot be read (RES-6).
fn of_kind(target: &Object, standing: &KindAvailability) -> Fault {
    let kind = &target.kind;
    match standing {
        KindAvailability::Forbidden(rule) => forbidden(kind, rule),
        KindAvailability::NotNamespaced => Fault::until_change(
            Reason::UnsupportedTarget,
            format!(
                "spec.workloadRef: objects of kind {kind} belong to no namespace and cannot be bound; bind what makes the pods in this one"
            ),
        ),
        KindAvailability::NotInstalled
        | KindAvailability::Unknown
        | KindAvailability::Served(_) => Fault::until_change(
            Reason::KindNotInstalled,
            format!(
                "spec.workloadRef: the API server does not know {kind}; the actor binds when its CustomResourceDefinition is there"
            ),
        ),
    }
}

/// Needs no retry: the watch of kinds retries, and enqueues the actor once the kind is readable.
fn forbidden(kind: &Kind, rule: &str) -> Fault {
    Fault::until_change(
        Reason::KindForbidden,
        format!(
            "spec.workloadRef: the operator may not read {kind}; add this rule to its ClusterRole:\n{}",
            rule.trim_end()
        ),
    )
}

/// Rare: the index is updated from the watch of actors, which also triggers the reconcile.
fn not_known() -> Fault {
    Fault::until_change(Reason::TargetNotReady, "spec.workloadRef cannot be read")
}

/// Fault for a target that an older actor binds (BIND-45).
fn already_bound(target: &Object, owner: &str) -> Fault {
    let (kind, name) = (target.kind.names().kind, &target.key.name);
    let text = format!(
        "spec.workloadRef: {kind}/{name} is already bound by AsyncActor {owner}; choose another target, or set that actor's queue.deletionPolicy to Retain, which keeps its queue and messages, and delete it"
    );
    Fault::until_change(Reason::AlreadyBound, text)
}

pub(super) fn pods(
    context: &Context,
    actor: &ActorRecord,
    expected: &PodMatch,
) -> Option<BoundPods> {
    let key = &actor.metadata.key;
    context.bindings.subscribe_pods(key, expected);
    let bare = context.bindings.pods.of(&key.namespace, expected)?;
    // Pods count whichever actor's label they carry (SAFE-18).
    let mut marked = context.bindings.marked.of(&key.namespace, expected)?;
    marked.retain(|pod| !pod.finished);
    for pod in &mut marked {
        context.stores.mounts.complete(pod);
    }
    Some(BoundPods { marked, bare })
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
