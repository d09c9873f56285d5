//! What a `workloadRef` means, per owning system (spec binding, section 2): which pods are the target's, which
//! workload makes them, how they roll and scale, and where the model answers. Everything here is pure: the shell
//! reads the objects that a resolver asks for, and the webhook knows [`pods_of`] before anything is resolved.

mod bento;
mod family;
mod fields;
mod generic;
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

pub use family::Family;
pub use intermediate::{Intermediates, is_open_ended, pods_with};
pub use kserve::is_claimed;
pub use object::{GroupKind, ObjectRef, controller_of};
pub use owned::template;
pub use pods::{Controller, OwnerRule, POD_TEMPLATE_HASH, PodMatch};
pub use selector::{Operator, Requirement, Selector};
pub use server::{ContainerShape, DEFAULT_CONTAINER, Server, adapter_of, main_container};

use intermediate::{in_chain, owned_by_any};
use owner::has_owner;

/// How one kind of target is understood.
pub trait Resolver: Sync {
    /// The kind of target; [`ANY`] of the one that knows no kind.
    fn group_kind(&self) -> GroupKind<'static>;

    /// The pods of a target of this name as far as its kind tells: known before anything is resolved, so that a
    /// pod is recognised that is born in the same second as its target (RES-5).
    fn convention(&self, name: &str) -> PodMatch;

    /// The kinds that must be read and watched to resolve a target: whole objects, with `apiVersion` and `kind`. One
    /// that the API server does not know is one without objects.
    fn related(&self) -> &[GroupKind<'static>] {
        &[]
    }

    /// The kind that stands between a target of this kind and its pods, where the pods carry no trace of the target:
    /// only the controller owner of such an object tells which target its pods belong to (SAFE-30).
    fn intermediate(&self) -> Option<GroupKind<'static>> {
        None
    }

    /// Why no target of this kind can be scaled by us, and the remedy, to be read after the target and a colon; `None`
    /// where that depends on the target, or it can.
    fn never_scaled(&self) -> Option<&'static str> {
        None
    }

    /// What the target means. A field of an unexpected type makes this target wait (RES-1).
    fn resolve(&self, target: &Value, related: &Related) -> Resolution;

    /// Where the model answers inside a pod with these containers; `main` is the pod's own word for which of them
    /// matters ([`DEFAULT_CONTAINER`]). The template of a workload and its pods answer alike.
    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server;
}

/// What was read beside the target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Related {
    /// Objects of the kinds that [`Resolver::related`] names, of the target's namespace.
    pub objects: BTreeMap<GroupKind<'static>, Vec<Value>>,
    /// The controller owner of the target, that object's owner, and so on upwards, as far as they can be read and at
    /// most four: a plain workload follows what its owner does (RES-4).
    pub owners: Vec<Value>,
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
    /// The adapter, where the target says it and its pods do not tell.
    pub adapter: Option<&'static str>,
    /// What users should know.
    pub warnings: Vec<Finding>,
}

/// The longest [`Target::chain`].
pub const MAX_CHAIN: usize = 10;

/// How pods that exist already are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roll {
    /// An annotation at this path (tokens, the annotation's own key left out) of this object, which is the target or
    /// owns it, makes the controller behind it roll.
    Annotate(ObjectRef, Vec<&'static str>),
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
    /// This object, as long as its owner is told to leave the number to others (SO-5).
    Claimed(ObjectRef, Claim),
    /// Nothing: `ScalingNotSupported`, with the remedy (SO-4).
    Refused(Finding),
}

/// What tells an owner that others scale: an annotation of ours on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The owner, which has an autoscaler of its own otherwise.
    pub owner: ObjectRef,
    /// Whether the annotation is there.
    pub is_made: bool,
    /// Whether the workload's pod template says of it what the owner says. Until then the owner is about to write it,
    /// and pods are replaced.
    pub is_followed: bool,
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
    /// The user has stopped the target: it has no workload until it is started again.
    TargetStopped,
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
    /// Nothing is known of the controller that made the workload (RES-24).
    UnknownOwner,
    /// Something to know before scaling; for actors that scale.
    ScalingCaveat,
    /// Something to know of a target of this kind, or as it is set up.
    BindingCaveat,
}

impl FindingReason {
    /// The reason as status and Events write it.
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
            Self::ScalingNotSupported => "ScalingNotSupported",
            Self::HasOwner => "HasOwner",
            Self::UnknownOwner => "UnknownOwner",
            Self::ScalingCaveat => "ScalingCaveat",
            Self::BindingCaveat => "BindingCaveat",
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

impl From<Result<Target, Resolution>> for Resolution {
    fn from(read: Result<Target, Resolution>) -> Self {
        read.map_or_else(|other| other, |target| Self::Found(Box::new(target)))
    }
}

impl Scale {
    /// What is scaled.
    #[must_use]
    pub fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Object(object) | Self::Claimed(object, _) => Some(object),
            Self::Refused(_) => None,
        }
    }

    /// What the owner of that must be told.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Claimed(_, claim) => Some(claim),
            Self::Object(_) | Self::Refused(_) => None,
        }
    }

    /// Nothing of this kind is scaled ([`Resolver::never_scaled`]).
    fn never(itself: &ObjectRef, why: &str) -> Self {
        Self::refused(format!("{itself}: {why}"))
    }

    /// Nothing is scaled, for this reason and with this remedy.
    fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Finding::new(FindingReason::ScalingNotSupported, message))
    }
}

/// Several workloads answer.
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

/// The kind of the resolver that knows no kind.
pub const ANY: GroupKind<'static> = GroupKind {
    group: "*",
    kind: "*",
};

/// Kinds whose objects are their own workloads.
static PLAIN: [&dyn Resolver; 2] = [&plain::DEPLOYMENT, &plain::STATEFUL_SET];

/// Kinds of other controllers whose rows are known.
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

/// How a kind is understood: by its own row, else by who owns what (RES-3).
#[must_use]
pub fn resolver(group: &str, kind: &str) -> &'static dyn Resolver {
    let wanted = GroupKind { group, kind };
    let plain = PLAIN.into_iter().find(|it| it.group_kind() == wanted);
    plain.or_else(|| known(wanted)).unwrap_or(&generic::GENERIC)
}

fn known(kind: GroupKind<'_>) -> Option<&'static dyn Resolver> {
    KNOWN.into_iter().find(|it| it.group_kind() == kind)
}

/// The kinds of other controllers that have a row of their own.
pub fn known_kinds() -> impl Iterator<Item = GroupKind<'static>> {
    KNOWN.into_iter().map(Resolver::group_kind)
}

/// Every kind that some row asks for.
fn all_related() -> Vec<GroupKind<'static>> {
    let related = KNOWN.into_iter().flat_map(Resolver::related);
    related.copied().collect()
}

/// The pods of a binding: what its kind tells by convention, or, once the target was resolved, what status says.
#[must_use]
pub fn pods_of(target: &WorkloadRef, resolved: Option<&ResolvedTarget>) -> PodMatch {
    let row = resolver(target.group(), &target.kind);
    pods_by(row, &target.name, resolved)
}

/// As [`pods_of`], by the resolver of the target's kind. An object that groups the pods of several workloads keeps the
/// owners of the convention, or has those objects in between that were found to be its own.
#[must_use]
pub fn pods_by(row: &dyn Resolver, name: &str, status: Option<&ResolvedTarget>) -> PodMatch {
    let convention = row.convention(name);
    let Some(status) = status else {
        return convention;
    };
    if let Some(kind) = row.intermediate() {
        return PodMatch {
            owner: owned_by_any(kind, in_chain(kind, status).map(str::to_owned)),
            ..convention
        };
    }
    let selector = status.pod_selector.as_deref();
    let selector = selector.and_then(|text| Selector::parse(text).ok());
    let owner = OwnerRule::of_workload(&status.api_version, &status.kind, &status.name);
    PodMatch {
        labels: selector.unwrap_or(convention.labels),
        owner: owner.unwrap_or(convention.owner),
    }
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
