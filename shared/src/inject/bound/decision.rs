//! The outcome of a pod review (INJ-1).

use std::fmt;

use super::{BoundActor, Patch};

/// The outcome of a review, and its reason.
#[derive(Debug, PartialEq)]
pub struct Decision<'a> {
    /// The actor that binds the pod, if any.
    pub actor: Option<&'a BoundActor>,
    /// Why; used as metric label and Event reason.
    pub reason: InjectionReason,
    /// How to answer the API server.
    pub action: Action,
    /// Warnings for the client that creates the pod.
    pub warnings: Vec<String>,
}

/// How to answer a review.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Admit the pod unchanged.
    Allow,
    /// Admit the pod without the sidecar, annotated with the reason.
    Annotate(Patch),
    /// Admit the pod with the actor's containers.
    Inject(Patch),
    /// Reject the pod with this message.
    Deny(String),
}

/// The reason for a [`Decision`], with its row in the table of INJ-1. The names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InjectionReason {
    /// Row 1: the namespace or the request is out of scope.
    NotServed,
    /// The pod cannot be decoded (ADM-3).
    Unreadable,
    /// Row 2: no actor binds the pod.
    NoActor,
    /// The other webhook path serves this actor (INJ-2).
    OtherPath,
    /// Row 3: the actor is being deleted.
    ActorDeleting,
    /// Row 3: the actor's queue and runtime script are not ready yet.
    NotBoundYet,
    /// Row 3: the actor's containers are in the pod template.
    StrategyTemplate,
    /// The actor's spec or its transport is unusable.
    ActorUnusable,
    /// Row 4: the pod opts out by label.
    OptedOut,
    /// Row 4: the pod uses the host network.
    HostNetwork,
    /// Row 4: a Windows pod.
    Windows,
    /// Row 4: the restart policy is not `Always`, but a queue worker never completes.
    RestartPolicy,
    /// Row 5: the pod is already complete.
    AlreadyInjected,
    /// Row 6: the pod was injected for another spec, actor or version.
    Replaced,
    /// Row 6: a field that the webhook had injected was missing or changed.
    Restored,
    /// Row 7: the pod has its own container or volume with a name reserved for injection, or one of the injected labels
    /// with another value.
    SpecConflict,
    /// The model's URL is unknown (BIND-23).
    TargetUrlUnknown,
    /// Row 8: no dry run has succeeded with the current sidecar (SAFE-1).
    NotProved,
    /// Row 8: the API server rejects pods with the sidecar.
    ProbeRejected,
    /// Row 9: the pod gets the sidecar.
    Injected,
}

impl InjectionReason {
    /// All reasons, as values of the metric label.
    pub const ALL: [Self; 20] = [
        Self::NotServed,
        Self::Unreadable,
        Self::NoActor,
        Self::OtherPath,
        Self::ActorDeleting,
        Self::NotBoundYet,
        Self::StrategyTemplate,
        Self::ActorUnusable,
        Self::OptedOut,
        Self::HostNetwork,
        Self::Windows,
        Self::RestartPolicy,
        Self::AlreadyInjected,
        Self::Replaced,
        Self::Restored,
        Self::SpecConflict,
        Self::TargetUrlUnknown,
        Self::NotProved,
        Self::ProbeRejected,
        Self::Injected,
    ];

    /// The reason as used in metrics, Events, annotations and status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotServed => "NotServed",
            Self::Unreadable => "Unreadable",
            Self::NoActor => "NoActor",
            Self::OtherPath => "OtherPath",
            Self::ActorDeleting => "ActorDeleting",
            Self::NotBoundYet => "NotBoundYet",
            Self::StrategyTemplate => "StrategyTemplate",
            Self::ActorUnusable => "ActorUnusable",
            Self::OptedOut => "OptedOut",
            Self::HostNetwork => "HostNetwork",
            Self::Windows => "Windows",
            Self::RestartPolicy => "RestartPolicy",
            Self::AlreadyInjected => "AlreadyInjected",
            Self::Replaced => "Replaced",
            Self::Restored => "Restored",
            Self::SpecConflict => "SpecConflict",
            Self::TargetUrlUnknown => "TargetURLUnknown",
            Self::NotProved => "NotProved",
            Self::ProbeRejected => "ProbeRejected",
            Self::Injected => "Injected",
        }
    }
}

impl fmt::Display for InjectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The webhook path that a review came in on. Each path handles only the actors of its failure policy (INJ-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewPath {
    /// `/mutate/pods`, failure policy Ignore.
    Optional,
    /// `/mutate/pods/required`, failure policy Fail.
    Required,
}
