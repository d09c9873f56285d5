//! Outcomes of reviews, as named in metrics and logs.

use asya_shared::admission::{DELETE_PATH, MUTATE_PATH, REQUIRED_PATH, VALIDATE_PATH};
use asya_shared::inject::bound::{InjectionReason, ReviewPath};

use crate::events::PodEvent;
use crate::review::{AdmissionRequest, AdmissionResponse};

/// The review endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointPath {
    /// Pods. Those of actors with `binding.required` do not start without the webhook; others do.
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

    /// The response when a review fails: the same as the path's failure policy.
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

/// Why a review had its result; for pods, the rows of INJ-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewReason {
    /// The decision about a pod.
    Pod(InjectionReason),
    /// The cache of actors is not synced yet.
    NotSynced,
    /// The actor is valid.
    Valid,
    /// The actor is invalid.
    Invalid,
    /// The actor is invalid, but mode Warn allows it.
    InvalidWarned,
    /// The queue of an actor being deleted still holds messages.
    HoldsMessages,
    /// The garbage collector would delete the objects that `deletionPolicy: Orphan` keeps.
    LosesOrphans,
    /// Actors of the CRD being deleted still have queues.
    ActorsLeft,
    /// Validation is disabled.
    Off,
    /// The actor is being deleted, so its spec no longer matters.
    Deleting,
    /// The spec did not change.
    Unchanged,
    /// The path does not serve this kind, resource or operation.
    NotServed,
    /// The object cannot be decoded.
    Unreadable,
    /// The review failed because of an internal error.
    InternalError,
    /// The request has a wrong media type, size or format.
    BadRequest,
    /// Too many bytes in flight.
    Busy,
    /// The request did not arrive in time.
    Deadline,
}

impl ReviewReason {
    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pod(row) => row.as_str(),
            Self::NotSynced => "NotSynced",
            Self::Valid => "Valid",
            Self::Invalid => "Invalid",
            Self::InvalidWarned => "InvalidWarned",
            Self::HoldsMessages => "HoldsMessages",
            Self::LosesOrphans => "LosesOrphans",
            Self::ActorsLeft => "ActorsLeft",
            Self::Off => "Off",
            Self::Deleting => "Deleting",
            Self::Unchanged => "Unchanged",
            Self::NotServed => "NotServed",
            Self::Unreadable => "Unreadable",
            Self::InternalError => "InternalError",
            Self::BadRequest => "BadRequest",
            Self::Busy => "Busy",
            Self::Deadline => "Deadline",
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
