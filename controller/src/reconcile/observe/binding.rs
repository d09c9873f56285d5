//! What there is of a binding: its target, and the target's pods.

use std::sync::Arc;

use asya_shared::resolve::{self, Finding, FindingReason, PodMatch, Resolution, Target};

use crate::binding::Found;
use crate::reconcile::desired::Desired;
use crate::reconcile::{Context, Error, Fault, Reason, Retry};
use crate::record::{ActorRecord, BarePodRecord, PodRecord};

/// A binding as a pass sees it.
#[derive(Debug, Default)]
pub struct BindingSeen {
    /// The target, or why it cannot be bound; `None` while that is not asked for.
    pub target: Option<Result<Box<Resolved>, Fault>>,
    /// Its pods; `None` while nobody has listed them.
    pub pods: Option<BoundPods>,
}

/// A target that is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// What it means.
    pub target: Target,
    /// Pods that are asked for, where it says so.
    pub replicas: Option<i32>,
}

/// Pods of a target.
#[derive(Clone, Debug, Default)]
pub struct BoundPods {
    /// Those that carry the mark of a binding.
    pub marked: Vec<Arc<PodRecord>>,
    /// Those that do not.
    pub bare: Vec<Arc<BarePodRecord>>,
}

/// Looks at target and pods of an actor that lives; `None` where we make the workload.
pub(super) async fn see(
    context: &Context,
    actor: &ActorRecord,
    desired: Result<&Desired, &Fault>,
) -> Result<Option<BindingSeen>, Error> {
    let Some(binds_to) = &actor.binds_to else {
        return Ok(None);
    };
    let Some(bound) = desired.ok().and_then(Desired::bound) else {
        return Ok(Some(BindingSeen::default()));
    };
    if actor.metadata.deleting {
        return Ok(Some(BindingSeen::default()));
    }
    let target = match &bound.misplaced {
        Some(fault) => Err(fault.clone()),
        None => target(context, actor).await?,
    };
    let expected = match &target {
        Ok(resolved) => Some(resolved.target.pods.clone()),
        // AlreadyBound and the like: no pod is this actor's.
        Err(fault)
            if fault.reason != Reason::TargetNotFound && fault.reason != Reason::TargetNotReady =>
        {
            None
        }
        Err(_) => resolve::pods_of(binds_to, None),
    };
    Ok(Some(BindingSeen {
        pods: match expected {
            Some(expected) => pods(context, actor, &expected),
            None => Some(BoundPods::default()),
        },
        target: Some(target),
    }))
}

async fn target(
    context: &Context,
    actor: &ActorRecord,
) -> Result<Result<Box<Resolved>, Fault>, Error> {
    let (key, bindings) = (&actor.metadata.key, &context.bindings);
    let Some(target) = bindings.target_of(key) else {
        let finding = actor.binds_to.as_ref().map(resolve::unsupported);
        return Ok(Err(finding.map_or_else(not_known, Fault::from)));
    };
    if let Some(owner) = bindings.owner_before(key) {
        return Ok(Err(already_bound(
            target.kind.kind,
            &target.key.name,
            &owner.name,
        )));
    }
    let found = match bindings.targets.read(&context.client, &target).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            return Ok(Err(Fault {
                reason: Reason::KindForbidden,
                message: format!(
                    "spec.workloadRef: the operator may not read {}: {}; allow its ClusterRole to get, list and watch it",
                    target.kind, status.message
                ),
                retry: Retry::Slowly,
            }));
        }
        Err(error) => return Err(Error::Api(error)),
    };
    Ok(match found {
        Found::Absent => Err(Fault::until_change(
            Reason::TargetNotFound,
            format!(
                "spec.workloadRef: {} {} does not exist; it is bound when it is created",
                target.kind.kind, target.key.name
            ),
        )),
        Found::Read(reading) => match &reading.resolution {
            Resolution::Found(found) => Ok(Box::new(Resolved {
                target: Target::clone(found),
                replicas: reading.replicas,
            })),
            Resolution::Waiting(finding) | Resolution::Refused(finding) => {
                Err(Fault::from(finding.clone()))
            }
        },
    })
}

/// The index follows the watch of actors, which is what a pass begins with.
fn not_known() -> Fault {
    Fault::until_change(Reason::TargetNotReady, "spec.workloadRef cannot be read")
}

/// BIND-45
fn already_bound(kind: &str, name: &str, owner: &str) -> Fault {
    let text = format!(
        "spec.workloadRef: {kind}/{name} is already bound by AsyncActor {owner}; delete that actor or choose another target"
    );
    Fault::until_change(Reason::AlreadyBound, text)
}

fn pods(context: &Context, actor: &ActorRecord, expected: &PodMatch) -> Option<BoundPods> {
    let key = &actor.metadata.key;
    context.bindings.expect(key, expected);
    let bare = context.bindings.pods.of(&key.namespace, expected)?;
    let mut marked = context.stores.pods.of_actor(key);
    marked.retain(|pod| {
        let injection = pod.injection.as_ref();
        !pod.finished && injection.is_some_and(|it| it.labels.match_with(&pod.metadata, expected))
    });
    for pod in &mut marked {
        context.stores.mounts.complete(pod);
    }
    Some(BoundPods { marked, bare })
}

impl From<Finding> for Fault {
    fn from(finding: Finding) -> Self {
        let reason = match finding.reason {
            FindingReason::TargetNotFound => Reason::TargetNotFound,
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
