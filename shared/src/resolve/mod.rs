//! What a `workloadRef` means, per owning system (spec binding, section 2): which pods are the target's, which
//! workload makes them, how they roll and scale, and where the model answers. Everything here is pure: the shell
//! reads the objects that a resolver asks for, and the webhook knows [`pods_of`] before anything is resolved.

mod family;
mod object;
mod plain;
mod pods;
mod selector;
mod server;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::api::{ResolvedTarget, WorkloadRef};

pub use family::Family;
pub use object::{GroupKind, ObjectRef, controller_of};
pub use pods::{Controller, OwnerRule, POD_TEMPLATE_HASH, PodMatch};
pub use selector::{Operator, Requirement, Selector};
pub use server::{ContainerShape, DEFAULT_CONTAINER, Server, main_container};

/// How one kind of target is understood.
pub trait Resolver: Sync {
    /// The kind of target.
    fn group_kind(&self) -> GroupKind<'static>;

    /// The pods of a target of this name as far as its kind tells: known before anything is resolved, so that a
    /// pod is recognised that is born in the same second as its target (RES-5).
    fn convention(&self, name: &str) -> PodMatch;

    /// The kinds that must be read and watched to resolve a target.
    fn related(&self) -> &[GroupKind<'static>] {
        &[]
    }

    /// What the target means. A field of an unexpected type makes this target wait (RES-1).
    fn resolve(&self, target: &Value, related: &Related) -> Resolution;

    /// Where the model answers inside a pod with these containers; `main` is the pod's own word for which of them
    /// matters ([`DEFAULT_CONTAINER`]). The template of a workload and its pods answer alike.
    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server;
}

/// What was read beside the target: objects of the kinds that [`Resolver::related`] names, of its namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Related {
    /// The objects, by kind.
    pub objects: BTreeMap<GroupKind<'static>, Vec<Value>>,
}

/// What became of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It is understood.
    Found(Box<Target>),
    /// Something is missing that may come; a watch or a retry tells.
    Waiting(Finding),
    /// It cannot be bound as it is: the target or the actor must change.
    Refused(Finding),
}

/// A target that is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The workload; where a target has several or none, the object that groups the pods (BIND-4).
    pub workload: ObjectRef,
    /// Its pods.
    pub pods: PodMatch,
    /// From the target down to the workload, both included; at most [`MAX_CHAIN`].
    pub chain: Vec<ObjectRef>,
    /// The controller owner of the workload that is not the target itself: it writes the workload, too.
    pub owner: Option<ObjectRef>,
    /// How pods that exist already get the sidecar.
    pub roll: Roll,
    /// What is scaled.
    pub scale: Scale,
    /// Where the model answers.
    pub server: Server,
    /// What users should know.
    pub warnings: Vec<Finding>,
}

/// The longest [`Target::chain`].
pub const MAX_CHAIN: usize = 10;

/// How pods that exist already are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roll {
    /// An annotation at this path (tokens, the annotation's own key left out) of the target makes its owner roll.
    AnnotateTarget(Vec<&'static str>),
    /// An annotation in the pod template of each of these workloads.
    AnnotateTemplate(Vec<ObjectRef>),
    /// Nothing rolls them: they are evicted one by one.
    Evict,
}

/// What a `ScaledObject` points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// This object, by its `/scale`.
    Object(ObjectRef),
    /// Nothing: `ScalingNotSupported`, with the remedy (SO-4).
    Refused(Finding),
}

/// Something that was found out about a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// For conditions and Events.
    pub reason: FindingReason,
    /// What is wrong and what to do.
    pub message: String,
}

/// Reasons of the condition `TargetResolved` and of Events about targets (BIND-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingReason {
    /// No object has this name.
    TargetNotFound,
    /// The target is there, its workload not yet, or a field cannot be read.
    TargetNotReady,
    /// The API server does not know the kind.
    KindNotInstalled,
    /// We may not read the kind.
    KindForbidden,
    /// A target of this kind, or as it is set up, cannot be bound.
    UnsupportedTarget,
    /// Several workloads answer.
    Ambiguous,
    /// The workload cannot be scaled by us.
    ScalingNotSupported,
    /// The workload belongs to an object that should be bound instead (RES-4).
    HasOwner,
}

impl FindingReason {
    /// The reason as status and Events write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TargetNotFound => "TargetNotFound",
            Self::TargetNotReady => "TargetNotReady",
            Self::KindNotInstalled => "KindNotInstalled",
            Self::KindForbidden => "KindForbidden",
            Self::UnsupportedTarget => "UnsupportedTarget",
            Self::Ambiguous => "Ambiguous",
            Self::ScalingNotSupported => "ScalingNotSupported",
            Self::HasOwner => "HasOwner",
        }
    }
}

impl fmt::Display for FindingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Finding {
    /// A finding with this message.
    #[must_use]
    pub fn new(reason: FindingReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Every kind that can be bound.
static RESOLVERS: [&dyn Resolver; 2] = [&plain::DEPLOYMENT, &plain::STATEFUL_SET];

/// The resolver of a kind; `None`: `UnsupportedTarget`, by [`unsupported`].
#[must_use]
pub fn resolver(group: &str, kind: &str) -> Option<&'static dyn Resolver> {
    RESOLVERS.into_iter().find(|it| {
        let GroupKind {
            group: its_group,
            kind: its_kind,
        } = it.group_kind();
        its_group == group && its_kind == kind
    })
}

/// All resolvers: what the controller may have to watch.
#[must_use]
pub fn resolvers() -> &'static [&'static dyn Resolver] {
    &RESOLVERS
}

/// What to say of a target that has no resolver.
#[must_use]
pub fn unsupported(target: &WorkloadRef) -> Finding {
    let known: Vec<_> = RESOLVERS
        .into_iter()
        .map(|it| it.group_kind().to_string())
        .collect();
    let (kind, group) = (&target.kind, target.group());
    Finding::new(
        FindingReason::UnsupportedTarget,
        format!(
            "spec.workloadRef: {kind} of group {group} cannot be bound; bind one of {}",
            known.join(", ")
        ),
    )
}

/// The pods of a binding: what its kind tells by convention, or, once the target was resolved, what status says.
/// `None` for a kind without a resolver.
#[must_use]
pub fn pods_of(target: &WorkloadRef, resolved: Option<&ResolvedTarget>) -> Option<PodMatch> {
    let convention = resolver(target.group(), &target.kind)?.convention(&target.name);
    let Some(resolved) = resolved else {
        return Some(convention);
    };
    let selector = resolved
        .pod_selector
        .as_deref()
        .and_then(|text| Selector::parse(text).ok());
    let owner = OwnerRule::of_workload(&resolved.api_version, &resolved.kind, &resolved.name);
    Some(PodMatch {
        labels: selector.unwrap_or(convention.labels),
        owner: owner.unwrap_or(convention.owner),
    })
}

impl Target {
    /// The target as status keeps it: [`pods_of`] reads it back.
    #[must_use]
    pub fn to_status(&self, namespace: &str) -> ResolvedTarget {
        let selector = self.pods.labels.to_string();
        ResolvedTarget {
            api_version: self.workload.api_version.clone(),
            kind: self.workload.kind.clone(),
            name: self.workload.name.clone(),
            namespace: Some(namespace.to_owned()),
            uid: self.workload.uid.clone(),
            pod_selector: Some(selector).filter(|text| !text.is_empty()),
            chain: self
                .chain
                .iter()
                .take(MAX_CHAIN)
                .map(ToString::to_string)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
