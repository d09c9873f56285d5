//! Outcomes of reviews, as named in metrics and logs.

use asya_shared::admission::{DELETE_PATH, MUTATE_PATH, REQUIRED_PATH, VALIDATE_PATH};
use asya_shared::inject::bound::Reason as Row;

use crate::events::Told;
use crate::review::{Answer, Request};

/// The review endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Pods of actors whose binding is optional: they start even without the webhook.
    Pods,
    /// Pods of actors with `binding.required`: they do not start without the webhook.
    RequiredPods,
    /// `AsyncActor`s.
    Actors,
    /// Deletions that could lose messages.
    Deletions,
}

impl Path {
    pub const ALL: [Self; 4] = [
        Self::Pods,
        Self::RequiredPods,
        Self::Actors,
        Self::Deletions,
    ];

    /// The URL path, also used as metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pods => MUTATE_PATH,
            Self::RequiredPods => REQUIRED_PATH,
            Self::Actors => VALIDATE_PATH,
            Self::Deletions => DELETE_PATH,
        }
    }

    /// The response when no verdict can be reached: the same as the path's failure policy.
    pub fn without_verdict(self, problem: &str) -> Answer {
        match self {
            Self::RequiredPods => Answer::denied(
                500,
                format!("asya-webhook: {problem}; this pod must not start without the sidecar"),
            ),
            Self::Pods => Answer::warned(format!(
                "asya-webhook: {problem}; the pod starts without the sidecar"
            )),
            Self::Actors => Answer::warned(format!(
                "asya-webhook: {problem}; asya-controller validates the actor"
            )),
            Self::Deletions => Answer::warned(format!(
                "asya-webhook: {problem}; messages were not checked"
            )),
        }
    }
}

/// Why a review ended as it did; for pods, the rows of INJ-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The outcome of a pod's decision.
    Pod(Row),
    /// The cache of actors is not synced yet.
    NotSynced,
    Valid,
    /// The actor breaks a rule.
    Invalid,
    /// The actor breaks a rule, and mode Warn lets it through.
    InvalidWarned,
    /// The queue of an actor being deleted still holds messages.
    HoldsMessages,
    /// Actors of the definition being deleted still have queues.
    ActorsLeft,
    /// Validation is disabled.
    Off,
    Deleting,
    /// The spec did not change.
    Unchanged,
    /// The path does not serve this kind, resource or operation.
    NotServed,
    /// The object cannot be decoded.
    Unreadable,
    /// An internal fault prevented a verdict.
    Panicked,
    /// Media type, size or form of the request is wrong.
    BadRequest,
    /// Too many bytes in flight.
    Busy,
    /// The request did not arrive in time.
    Deadline,
}

impl Reason {
    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pod(row) => row.as_str(),
            Self::NotSynced => "NotSynced",
            Self::Valid => "Valid",
            Self::Invalid => "Invalid",
            Self::InvalidWarned => "InvalidWarned",
            Self::HoldsMessages => "HoldsMessages",
            Self::ActorsLeft => "ActorsLeft",
            Self::Off => "Off",
            Self::Deleting => "Deleting",
            Self::Unchanged => "Unchanged",
            Self::NotServed => "NotServed",
            Self::Unreadable => "Unreadable",
            Self::Panicked => "Panicked",
            Self::BadRequest => "BadRequest",
            Self::Busy => "Busy",
            Self::Deadline => "Deadline",
        }
    }
}

/// A response and its reason.
#[derive(Debug)]
pub struct Verdict {
    pub answer: Answer,
    pub reason: Reason,
    /// The Event to write, if any; never for a dry run (ADM-4).
    pub told: Option<Told>,
}

impl Verdict {
    /// Allows without warnings.
    pub fn allowed(reason: Reason) -> Self {
        Self {
            answer: Answer::allowed(),
            reason,
            told: None,
        }
    }

    /// For a request that the path does not serve: allowed, because our misconfiguration must not block anyone.
    pub fn not_served(request: &Request<'_>) -> Self {
        let subject = request.subject();
        Self {
            answer: Answer::warned(format!(
                "asya-webhook: {subject} is not served on this path"
            )),
            reason: Reason::NotServed,
            told: None,
        }
    }

    /// The result of the review, for metrics.
    pub fn ended(&self) -> Ended {
        match (&self.answer, self.reason) {
            (_, Reason::Panicked | Reason::NotSynced) => Ended::Error,
            (answer, _) if answer.denied.is_some() => Ended::Denied,
            (answer, _) if answer.patch.is_some() => Ended::Patched,
            (_, Reason::Pod(Row::AlreadyInjected)) => Ended::Empty,
            _ => Ended::Allowed,
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
pub enum Ended {
    /// The pod gets a patch.
    Patched,
    /// The pod already has everything.
    Empty,
    /// Allowed without a change.
    Allowed,
    Denied,
    /// No verdict was reached.
    Error,
}

impl Ended {
    pub fn result(self) -> &'static str {
        match self {
            Self::Patched => "patched",
            Self::Empty => "empty",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}
