//! The observed state of a binding: the target and its pods.

use std::collections::BTreeSet;

use asya_shared::api::AsyncActorStatus;
use asya_shared::resolve::Target;
use asya_shared::scaling::{ScalingObjects, TriggerError};
use serde_json::Value;

use crate::binding::OurTemplateFields;
use crate::binding::probe_schedule::NextProbe;
use crate::binding::unenforced_required::Enforcement;
use crate::fault::{Fault, Reason};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::model::rollout::{ObservedRollout, ObservedUnbinding};
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::model::template_handoff::TemplateHandoff;
use crate::record::AutoscalerTarget;

/// A binding as observed by one reconcile.
#[derive(Debug)]
pub enum ObservedBinding {
    /// The spec cannot be acted on, or the target has not been looked up yet.
    Unknown,
    /// The target cannot be bound.
    Refused(Box<RefusedBinding>),
    Resolved(Box<ResolvedBinding>),
    /// The actor is being deleted: what is left to clean up; `None` while that is unknown.
    Unbinding(Option<Box<ObservedUnbinding>>),
}

#[derive(Debug)]
pub struct RefusedBinding {
    /// Why it cannot be bound.
    pub fault: Fault,
    pub injection: ObservedInjection,
}

#[derive(Debug)]
pub struct ResolvedBinding {
    pub target: Resolved,
    pub injection: ObservedInjection,
    /// The other actor whose fields are in the target's pod template, if it still exists.
    pub template_actor: Option<ActorInTemplate>,
    /// State for a rollout of the pods; `None` if no rollout is considered.
    pub rollout: Option<ObservedRollout>,
    /// How the queue scales the target, or why it cannot; `None` while scaling is off.
    pub scaling: Option<Result<TargetScaling, Fault>>,
}

/// The pods that should get the sidecar, and what decides whether they do.
#[derive(Debug, Default)]
pub struct ObservedInjection {
    /// The target's pods; `None` until they have been listed.
    pub pods: Option<TargetPods>,
    /// Set if this actor applied fields to the pod template of a target that an older actor binds now, or if a deleted
    /// actor left its fields in the template of this one's target.
    pub template_handoff: Option<TemplateHandoff>,
    /// Whether its webhook entry may fail closed, if it is required (CFG-7).
    pub enforcement: Enforcement,
    /// Dry-run state of the pods; `None` if no dry run is made.
    pub probe: Option<ObservedProbe>,
    /// Resources that need limits in the namespace; `None` until its quotas have been listed.
    pub limits: Option<ResourceNames>,
}

/// Another actor whose fields are in the target's pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorInTemplate {
    pub name: Box<str>,
    /// It does not remove its fields until it is resumed.
    pub paused: bool,
}

impl ActorInTemplate {
    /// The actor, and what keeps it from removing its sidecar.
    pub fn describe(actor: Option<&Self>) -> String {
        match actor {
            Some(Self { name, paused: true }) => format!(
                "AsyncActor {name}, which is paused and removes it once annotation asya.sh/paused is gone"
            ),
            Some(Self { name, .. }) => format!("AsyncActor {name}"),
            None => "an AsyncActor that no longer exists".to_owned(),
        }
    }
}

/// Resource names, such as `memory`.
pub type ResourceNames = BTreeSet<Box<str>>;

/// Dry-run state of a target's pods.
#[derive(Clone, Debug, Default)]
pub struct ObservedProbe {
    /// Whether a dry run would show something that status does not.
    pub needed: bool,
    /// When the next dry run is due.
    pub next_probe: NextProbe,
    /// The pod to dry-run if a rollout provides none (see [`crate::reconcile::model::observed::Observed::probe_pod`]).
    pub pod: Option<Value>,
}

impl ObservedProbe {
    /// Whether to make a dry run now.
    pub fn is_due(&self) -> bool {
        (self.needed || self.next_probe.requested) && self.next_probe.wait.is_none()
    }
}

/// How the queue scales a target.
#[derive(Debug)]
pub struct TargetScaling {
    /// The object to scale.
    pub target: AutoscalerTarget,
    /// The KEDA objects to apply, or why no trigger can be built for the queue yet.
    pub objects: Result<ScalingObjects, TriggerError>,
}

impl ObservedBinding {
    /// The binding, once its target is resolved.
    pub fn resolved(&self) -> Option<&ResolvedBinding> {
        match self {
            Self::Resolved(resolved) => Some(resolved),
            Self::Unknown | Self::Refused(_) | Self::Unbinding(_) => None,
        }
    }

    /// Why the target cannot be bound.
    pub fn target_fault(&self) -> Option<&Fault> {
        match self {
            Self::Refused(refused) => Some(&refused.fault),
            Self::Unknown | Self::Resolved(_) | Self::Unbinding(_) => None,
        }
    }

    /// The pods that should get the sidecar; `None` until the target has been looked up.
    pub fn injection(&self) -> Option<&ObservedInjection> {
        match self {
            Self::Refused(refused) => Some(&refused.injection),
            Self::Resolved(resolved) => Some(&resolved.injection),
            Self::Unknown | Self::Unbinding(_) => None,
        }
    }

    /// The target's pods; `None` until they have been listed.
    pub fn pods(&self) -> Option<&TargetPods> {
        self.injection()?.pods.as_ref()
    }

    /// The remaining clean-up for an actor being deleted; `None` while that is unknown.
    pub fn unbinding(&self) -> Option<&ObservedUnbinding> {
        match self {
            Self::Unbinding(unbinding) => unbinding.as_deref(),
            Self::Unknown | Self::Refused(_) | Self::Resolved(_) => None,
        }
    }

    /// Whether an older actor binds the target (BIND-45).
    pub fn is_bound_by_other(&self) -> bool {
        let fault = self.target_fault();
        fault.is_some_and(|fault| fault.reason == Reason::AlreadyBound)
    }

    /// How the queue scales the target, if it can.
    pub fn target_scaling(&self) -> Option<&TargetScaling> {
        self.resolved()?.scaling.as_ref()?.as_ref().ok()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub target: Target,
    /// Desired replicas, if the target specifies them.
    pub replicas: Option<i32>,
    /// Identifies the target's spec, to detect that it changed (CONF-6).
    pub spec_hash: Box<str>,
    /// The fields of its pod template that we own (BIND-50).
    pub our_template_fields: Option<OurTemplateFields>,
}

impl Resolved {
    /// UID of the target, which stays the same when the workload below it is replaced.
    pub fn uid(&self) -> Option<&str> {
        let target = self.target.chain.first().unwrap_or(&self.target.workload);
        target.uid.as_deref()
    }

    /// UID of the other actor whose fields are in the pod template.
    pub fn other_actor_in_template(&self, uid: &str) -> Option<&str> {
        let ownership = self
            .our_template_fields
            .as_ref()
            .filter(|ownership| !ownership.may_belong_to(uid))?;
        ownership.actor.as_deref()
    }

    /// The current revision of the specs. A yielded field is written again once it changes (CONF-6).
    pub fn revision(&self, generation: i64) -> SpecRevision {
        SpecRevision {
            generation,
            spec_hash: self.spec_hash.to_string(),
        }
    }

    /// The contention over fields of this target, according to `previous`; `None` if the target has no UID.
    pub fn contention_history<'a>(
        &'a self,
        previous: &'a AsyncActorStatus,
        generation: i64,
    ) -> Option<ContentionHistory<'a>> {
        Some(ContentionHistory {
            entries: &previous.conflicts,
            uid: self.uid()?,
            revision: self.revision(generation),
        })
    }
}
