//! Outcomes of reviews, as named in metrics and logs.

use asya_shared::admission::{DELETE_PATH, MUTATE_PATH, REQUIRED_PATH, VALIDATE_PATH};
use asya_shared::inject::bound::InjectionReason;
pub use asya_shared::reason::ReviewReason;

use crate::events::PodEvent;
use crate::review::{AdmissionRequest, AdmissionResponse};

/// Path of a pod review: one for each failure policy of a webhook entry. It matters only if the review cannot be
/// decided (INJ-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReviewPath {
    /// `/mutate/pods`, failure policy Ignore.
    Optional,
    /// `/mutate/pods/required`, failure policy Fail.
    Required,
}

/// The review endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointPath {
    /// Pods. Those of actors with `binding.required` do not start while the webhook is down; others do.
    Pods(ReviewPath),
    /// `AsyncActor`s.
    Actors,
    /// Deletions that could lose messages.
    Deletions,
}

impl EndpointPath {
    pub const ALL: [Self; 4] = [
        Self::Pods(ReviewPath::Optional),
        Self::Pods(ReviewPath::Required),
        Self::Actors,
        Self::Deletions,
    ];

    /// The URL path, also used as metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pods(ReviewPath::Optional) => MUTATE_PATH,
            Self::Pods(ReviewPath::Required) => REQUIRED_PATH,
            Self::Actors => VALIDATE_PATH,
            Self::Deletions => DELETE_PATH,
        }
    }

    /// The response if a review fails: the same as that of the path's failure policy.
    pub fn fallback_response(self, problem: &str) -> AdmissionResponse {
        match self {
            Self::Pods(ReviewPath::Required) => AdmissionResponse::denied(
                500,
                format!("asya-webhook: {problem}; this pod must not start without the sidecar"),
            ),
            Self::Pods(ReviewPath::Optional) => AdmissionResponse::warned(format!(
                "asya-webhook: {problem}; the pod starts without the sidecar"
            )),
            Self::Actors => AdmissionResponse::warned(format!(
                "asya-webhook: {problem}; asya-controller validates the actor"
            )),
            Self::Deletions => AdmissionResponse::warned(format!(
                "asya-webhook: {problem}; messages were not checked"
            )),
        }
    }
}

/// A response and its reason.
#[derive(Debug)]
pub struct ReviewOutcome {
    pub response: AdmissionResponse,
    pub reason: ReviewReason,
    /// The Event to write, if any; never for a dry run (ADM-4).
    pub event: Option<PodEvent>,
}

impl ReviewOutcome {
    /// Allows without warnings.
    pub fn allowed(reason: ReviewReason) -> Self {
        Self {
            response: AdmissionResponse::allowed(),
            reason,
            event: None,
        }
    }

    /// Allows a request that the path does not serve, because our misconfiguration must not block users.
    pub fn not_served(request: &AdmissionRequest<'_>) -> Self {
        let subject = request.subject();
        Self {
            response: AdmissionResponse::warned(format!(
                "asya-webhook: {subject} is not served on this path"
            )),
            reason: ReviewReason::NotServed,
            event: None,
        }
    }

    /// The result of the review, for metrics.
    pub fn result(&self) -> ReviewResult {
        match (&self.response, self.reason) {
            (_, ReviewReason::InternalError | ReviewReason::NotSynced) => ReviewResult::Error,
            (response, _) if response.denied.is_some() => ReviewResult::Denied,
            (response, _) if response.patch.is_some() => ReviewResult::Patched,
            (_, ReviewReason::Pod(InjectionReason::AlreadyInjected)) => ReviewResult::Empty,
            _ => ReviewResult::Allowed,
        }
    }
}

/// Maps an operation to one of a few label values.
pub fn operation(name: &str) -> &'static str {
    match name {
        "CREATE" => "CREATE",
        "UPDATE" => "UPDATE",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        _ => "other",
    }
}

/// Results of a review: the values of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewResult {
    /// The pod is patched.
    Patched,
    /// The pod is already injected.
    Empty,
    /// Allowed without a change.
    Allowed,
    Denied,
    /// The review failed.
    Error,
}

impl ReviewResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Empty => "empty",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}
