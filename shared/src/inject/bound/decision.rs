//! The outcome of a pod review (INJ-1).

use std::borrow::Cow;

use super::{BoundActor, Patch};
pub use crate::reason::InjectionReason;

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

/// Why a pod cannot get the sidecar, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInjectable {
    /// The reason, for metrics, Events and conditions.
    pub reason: InjectionReason,
    /// The obstacle, and how to remove it; continues a sentence about the pod or its template.
    pub text: Cow<'static, str>,
}

impl NotInjectable {
    pub(super) fn new(reason: InjectionReason, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            text: text.into(),
        }
    }

    pub(super) fn unreadable() -> Self {
        Self::new(InjectionReason::Unreadable, "it cannot be decoded")
    }

    pub(super) fn target_url_unknown() -> Self {
        Self::new(
            InjectionReason::TargetUrlUnknown,
            "the URL of its model is unknown: declare the port of the model's container, or set \
             spec.runtime.targetURL of the actor",
        )
    }
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
