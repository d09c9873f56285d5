//! Resolves a `workloadRef`, with one resolver per integration (spec binding, section 2): to the target's pods, the
//! workload that creates them, how they roll and scale, and where the model answers. Everything here is pure: the
//! caller reads the objects that a resolver needs, and the webhook uses [`pods_of`] even before a target is resolved.

mod bento;
mod fields;
mod generic;
mod integration;
mod intermediate;
mod kaito;
mod knative;
mod kserve;
mod llm;
mod object;
mod owned;
mod owner;
mod plain;
mod pods;
mod ray;
mod seldon;
mod seldon2;
mod selector;
mod server;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::api::{ResolvedTarget, WorkloadRef};

pub use integration::Integration;
pub use intermediate::{IntermediateOwners, has_intermediate_owners, pods_with_intermediates};
pub use kserve::is_handed_off;
pub use object::{GroupKind, ObjectRef, controller_of};
pub use owned::template;
pub use pods::{Controller, OwnerRule, POD_TEMPLATE_HASH, PodMatch, lookup_names_of_pod};
pub use selector::{Operator, Requirement, Selector};
pub use server::{ContainerShape, DEFAULT_CONTAINER, Server, adapter_of, main_container};

use intermediate::{in_chain, owned_by_any};
use owner::has_owner;

/// Resolves one kind of target.
pub trait Resolver: Sync {
    /// The kind of target; [`ANY`] for the fallback resolver.
    fn group_kind(&self) -> GroupKind<'static>;

    /// Matches the pods of a target of this name as far as the kind alone determines them. Available before the target
    /// is resolved, so that a pod created within the same second as its target is recognised (RES-5).
    fn unresolved_pods(&self, name: &str) -> PodMatch;

    /// The kinds to read and watch in order to resolve a target, as whole objects with `apiVersion` and `kind`. A kind
    /// that the API server does not know counts as having no objects.
    fn related(&self) -> &[GroupKind<'static>] {
        &[]
    }

    /// The kind between a target of this kind and its pods, if the pods carry no trace of the target: only the
    /// controller owner of such an object identifies the target of its pods (SAFE-30).
    fn intermediate(&self) -> Option<GroupKind<'static>> {
        None
    }

    /// Why we can never scale a target of this kind, with the remedy, for a message of the form `target: reason`.
    /// `None` if targets of this kind can be scaled or if it depends on the target.
    fn unscalable_reason(&self) -> Option<&'static str> {
        None
    }

    /// Resolves the target. A field of an unexpected type makes it wait (RES-1).
    fn resolve(&self, target: &Value, related: &Related) -> Resolution;

    /// Where the model answers in a pod with these containers; `main` is the pod's own annotation for its main
    /// container ([`DEFAULT_CONTAINER`]). The result is the same for a workload's template and for its pods.
    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server;
}

/// The objects read in addition to the target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Related {
    /// Objects in the target's namespace of the kinds in [`Resolver::related`].
    pub objects: BTreeMap<GroupKind<'static>, Vec<Value>>,
    /// The target's controller owner, that object's owner, and so on upwards, as far as they can be read and at most
    /// four: a plain workload rolls and scales as its owner requires (RES-4).
    pub owners: Vec<Value>,
}

/// The result of resolving a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// The target is resolved.
    Found(Box<Target>),
    /// Something is missing that may still appear; a watch event or a retry resolves the target again.
    Waiting(Finding),
    /// The target cannot be bound as it is: the target or the actor must change.
    Refused(Finding),
}

/// A resolved target.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The workload; for a target with several or none, the object that groups the pods (BIND-4).
    pub workload: ObjectRef,
    /// The target's pods.
    pub pods: PodMatch,
    /// The objects from the target down to the workload, both included; at most [`MAX_CHAIN`].
    pub chain: Vec<ObjectRef>,
    /// The workload's controller owner, if that is not the target; it also writes to the workload.
    pub owner: Option<ObjectRef>,
    /// How to roll existing pods so that they get the sidecar.
    pub roll: RolloutMethod,
    /// The object to scale.
    pub scale: Scale,
    /// Where the model answers.
    pub server: Server,
    /// The adapter, if the target determines it rather than its pods.
    pub adapter: Option<&'static str>,
    /// Warnings for the user.
    pub warnings: Vec<Caveat>,
}

/// The maximum length of [`Target::chain`].
pub const MAX_CHAIN: usize = 10;

/// How to replace existing pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutMethod {
    /// Set an annotation on this object, which is the target or its owner, so that its controller rolls the pods. The
    /// path consists of tokens and excludes the annotation's key.
    Annotate(ObjectRef, Vec<&'static str>),
    /// Set an annotation in the pod template of each of these workloads.
    AnnotateTemplate(Vec<ObjectRef>),
    /// Evict pods one by one, because nothing rolls them.
    Evict,
}

/// The object that a `ScaledObject` refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// This object, through its `/scale` subresource.
    Object(ObjectRef),
    /// This object, while an annotation makes its owner leave the replicas to another autoscaler (SO-5).
    HandedOff(ObjectRef, AutoscalerHandoff),
    /// Nothing, for this reason, which includes the remedy: `ScalingNotSupported` (SO-4).
    Refused(String),
}

/// Our annotation that makes an owner leave scaling to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoscalerHandoff {
    /// The owner, which otherwise creates its own autoscaler.
    pub owner: ObjectRef,
    /// Whether the annotation is set.
    pub is_set: bool,
    /// Whether the annotation in the workload's pod template matches the owner's. Until it does, the owner is about to
    /// update the template, which replaces the pods.
    pub is_propagated: bool,
}

/// Why a target cannot be bound, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The reason for conditions and Events.
    pub reason: FindingReason,
    /// The problem, and its remedy.
    pub message: String,
}

/// Reasons of condition `TargetResolved` (BIND-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingReason {
    /// No object of this name exists.
    TargetNotFound,
    /// The target exists, but its workload does not yet, or a field cannot be read.
    TargetNotReady,
    /// The user has stopped the target: it has no workload until it is started again.
    TargetStopped,
    /// The API server does not know the kind.
    KindNotInstalled,
    /// The operator has no permission to read the kind.
    KindForbidden,
    /// This kind of target, or this configuration of it, cannot be bound.
    UnsupportedTarget,
    /// Several workloads match.
    Ambiguous,
}

/// A warning about a target that can be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    /// What it is about.
    pub reason: CaveatReason,
    /// The warning, and what to do about it.
    pub message: String,
}

/// What a [`Caveat`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaveatReason {
    /// The workload belongs to an object that should be bound instead (RES-4).
    HasOwner,
    /// The controller that created the workload is unknown (RES-24).
    UnknownOwner,
    /// A caveat for actors that scale.
    ScalingCaveat,
    /// A caveat for targets of this kind, or with this configuration.
    BindingCaveat,
}

impl FindingReason {
    /// The reason as used in status and Events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TargetNotFound => "TargetNotFound",
            Self::TargetNotReady => "TargetNotReady",
            Self::TargetStopped => "TargetStopped",
            Self::KindNotInstalled => "KindNotInstalled",
            Self::KindForbidden => "KindForbidden",
            Self::UnsupportedTarget => "UnsupportedTarget",
            Self::Ambiguous => "Ambiguous",
        }
    }
}

impl fmt::Display for FindingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Finding {
    /// Creates a finding with this message.
    #[must_use]
    pub fn new(reason: FindingReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

impl Caveat {
    /// Creates a warning with this message.
    #[must_use]
    pub fn new(reason: CaveatReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

impl From<Result<Target, Resolution>> for Resolution {
    fn from(read: Result<Target, Resolution>) -> Self {
        read.map_or_else(|other| other, |target| Self::Found(Box::new(target)))
    }
}

impl Scale {
    /// The object to scale, if any.
    #[must_use]
    pub fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Object(object) | Self::HandedOff(object, _) => Some(object),
            Self::Refused(_) => None,
        }
    }

    /// The annotation that the object's owner needs, if any.
    #[must_use]
    pub fn handoff(&self) -> Option<&AutoscalerHandoff> {
        match self {
            Self::HandedOff(_, handoff) => Some(handoff),
            Self::Object(_) | Self::Refused(_) => None,
        }
    }

    /// For a kind that cannot be scaled ([`Resolver::unscalable_reason`]).
    fn unscalable(itself: &ObjectRef, why: &str) -> Self {
        Self::refused(format!("{itself}: {why}"))
    }

    /// Scaling is refused for this reason, which includes the remedy.
    fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}

/// The resolution of a target with several matching workloads.
fn ambiguous(target: &ObjectRef, workloads: impl Iterator<Item = ObjectRef>) -> Resolution {
    let mut names: Vec<_> = workloads.map(|it| it.to_string()).collect();
    names.sort();
    Resolution::Refused(Finding::new(
        FindingReason::Ambiguous,
        format!(
            "{target} has several workloads: {}; set spec.workloadRef to one of them, in a new AsyncActor",
            names.join(", ")
        ),
    ))
}

/// Placeholder kind of the fallback resolver.
pub const ANY: GroupKind<'static> = GroupKind {
    group: "*",
    kind: "*",
};

/// Kinds whose objects are workloads themselves.
static PLAIN: [&dyn Resolver; 2] = [&plain::DEPLOYMENT, &plain::STATEFUL_SET];

/// Kinds of other controllers with a resolver of their own.
static KNOWN: [&dyn Resolver; 11] = [
    &kaito::WORKSPACE,
    &kaito::INFERENCE_SET,
    &kserve::INFERENCE_SERVICE,
    &llm::LLM_INFERENCE_SERVICE,
    &ray::CLUSTER,
    &ray::SERVICE,
    &knative::KNATIVE_SERVICE,
    &seldon::SELDON_DEPLOYMENT,
    &seldon2::SELDON_SERVER,
    &seldon2::SELDON_MODEL,
    &bento::BENTO_DEPLOYMENT,
];

/// The resolver of a kind; kinds without one of their own are resolved by following owner references (RES-3).
#[must_use]
pub fn resolver(group: &str, kind: &str) -> &'static dyn Resolver {
    let searched = GroupKind { group, kind };
    let plain = PLAIN.into_iter().find(|it| it.group_kind() == searched);
    plain
        .or_else(|| known(searched))
        .unwrap_or(&generic::GENERIC)
}

fn known(kind: GroupKind<'_>) -> Option<&'static dyn Resolver> {
    KNOWN.into_iter().find(|it| it.group_kind() == kind)
}

/// The kinds of other controllers with a resolver of their own.
pub fn known_kinds() -> impl Iterator<Item = GroupKind<'static>> {
    KNOWN.into_iter().map(Resolver::group_kind)
}

/// Every kind that any resolver reads.
fn all_related() -> Vec<GroupKind<'static>> {
    let related = KNOWN.into_iter().flat_map(Resolver::related);
    related.copied().collect()
}

/// Matches the pods of a binding: by kind and name or, once the target is resolved, by status.
#[must_use]
pub fn pods_of(target: &WorkloadRef, resolved: Option<&ResolvedTarget>) -> PodMatch {
    pods_by(
        resolver(target.group(), &target.kind),
        &target.name,
        resolved,
    )
}

/// Like [`pods_of`], for a given resolver. For a target that groups the pods of several workloads, status either keeps
/// the owners that the kind determines or names the intermediate objects that belong to the target.
#[must_use]
pub fn pods_by(resolver: &dyn Resolver, name: &str, status: Option<&ResolvedTarget>) -> PodMatch {
    let unresolved = resolver.unresolved_pods(name);
    let Some(status) = status else {
        return unresolved;
    };
    if let Some(kind) = resolver.intermediate() {
        return PodMatch {
            owner: owned_by_any(kind, in_chain(kind, status).map(str::to_owned)),
            ..unresolved
        };
    }
    let selector = status.pod_selector.as_deref();
    let selector = selector.and_then(|text| Selector::parse(text).ok());
    let owner = OwnerRule::of_workload(&status.api_version, &status.kind, &status.name);
    PodMatch {
        labels: selector.unwrap_or(unresolved.labels),
        owner: owner.unwrap_or(unresolved.owner),
    }
}

impl Target {
    /// The object that a queue scales, or scaled before its user or owner decided otherwise.
    #[must_use]
    pub fn scaled(&self) -> &ObjectRef {
        self.scale.object().unwrap_or(&self.workload)
    }

    /// The target as stored in status, from which [`pods_of`] reads it back.
    #[must_use]
    pub fn to_status(&self, namespace: &str) -> ResolvedTarget {
        let selector = self.pods.labels.to_string();
        ResolvedTarget {
            api_version: self.workload.api_version.clone(),
            kind: self.workload.kind.clone(),
            name: self.workload.name.clone(),
            namespace: Some(namespace.to_owned()),
            uid: self.workload.uid.clone(),
            adapter: self.adapter.map(str::to_owned),
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
