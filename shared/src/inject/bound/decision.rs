//! What a review of a pod comes to (INJ-1).

use std::fmt;

use super::{BoundActor, Patch};

/// What to answer, and why.
#[derive(Debug, PartialEq)]
pub struct Decision<'a> {
    /// The actor whose pod it is.
    pub actor: Option<&'a BoundActor>,
    /// The row that matched: a metric's label and an Event's reason.
    pub reason: Reason,
    /// The answer.
    pub action: Action,
    /// What whoever creates the pod should know.
    pub warnings: Vec<String>,
}

/// The answer to a review.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The pod passes as it is.
    Allow,
    /// The pod passes and is told only why it was left alone.
    Mark(Patch),
    /// The pod passes with the actor's containers.
    Inject(Patch),
    /// The pod is refused, with this text.
    Deny(String),
}

/// Why a review was answered so. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Row 1: nothing of ours is done in this namespace, or to this request.
    NotServed,
    /// The pod cannot be read (ADM-3).
    Unreadable,
    /// Row 2: no actor's pod.
    NoActor,
    /// The other path serves this actor (INJ-2).
    OtherPath,
    /// Row 3: the actor is being deleted.
    ActorDeleting,
    /// Row 3: queue and runtime of the actor are not there yet.
    NotBoundYet,
    /// Row 3: the actor's containers stand in the template.
    StrategyTemplate,
    /// The actor's spec, or its transport, cannot be used.
    ActorUnusable,
    /// Row 4: the pod's label says no.
    OptedOut,
    /// Row 4: the host's network would be shared.
    HostNetwork,
    /// Row 4: a pod for Windows.
    Windows,
    /// Row 4: a queue worker never completes.
    RestartPolicy,
    /// Row 5: nothing is missing.
    AlreadyInjected,
    /// Row 6: of another spec, actor or release.
    Replaced,
    /// Row 6: something of ours had been taken away.
    Restored,
    /// Row 7: something else stands under our names.
    SpecConflict,
    /// Nothing says where the model answers (BIND-23).
    TargetUrlUnknown,
    /// Row 8: no dry run has succeeded with the sidecar of today (SAFE-1).
    NotProved,
    /// Row 8: the API server refuses pods with the sidecar.
    ProbeRejected,
    /// Row 9.
    Injected,
}

impl Reason {
    /// All of them: the values of a metric's label.
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

    /// The reason as metrics, Events, annotations and status write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which of the two paths of the webhook a review came by; each handles the actors of its policy only (INJ-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewPath {
    /// `/mutate/pods`, failure policy Ignore.
    Optional,
    /// `/mutate/pods/required`, failure policy Fail.
    Required,
}
