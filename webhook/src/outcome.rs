//! What can come of a review: the words of metrics and logs.

use asya_shared::admission::{DELETE_PATH, MUTATE_PATH, REQUIRED_PATH, VALIDATE_PATH};
use asya_shared::inject::bound::Reason as Row;

use crate::events::Told;
use crate::review::{Answer, Request};

/// The paths that reviews are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Pods of actors that do not insist: without us they start all the same.
    Pods,
    /// Pods of actors with `binding.required`: without us they do not start.
    RequiredPods,
    /// `AsyncActor`s.
    Actors,
    /// Deletions that would take messages with them.
    Deletions,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Pods,
        Self::RequiredPods,
        Self::Actors,
        Self::Deletions,
    ];

    /// As requests and metrics name it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pods => MUTATE_PATH,
            Self::RequiredPods => REQUIRED_PATH,
            Self::Actors => VALIDATE_PATH,
            Self::Deletions => DELETE_PATH,
        }
    }

    /// The answer where no verdict can be reached: what the path's failure policy would do.
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
                "asya-webhook: {problem}; asya-controller judges the actor"
            )),
            Self::Deletions => Answer::warned(format!(
                "asya-webhook: {problem}; nobody looked for messages"
            )),
        }
    }
}

/// Why a review ended as it did: of pods by the rows of INJ-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// What a pod's decision came to.
    Pod(Row),
    /// The actors are not known yet.
    NotSynced,
    /// Nothing is wrong.
    Valid,
    /// The actor breaks a rule.
    Invalid,
    /// The actor breaks a rule, and mode Warn lets it through.
    InvalidWarned,
    /// An actor is not deleted while its queue holds messages.
    HoldsMessages,
    /// The definition is not deleted while actors have queues.
    ActorsLeft,
    /// Validation is switched off.
    Off,
    /// The actor is being deleted.
    Deleting,
    /// The spec is as it was.
    Unchanged,
    /// Kind, resource or operation is none of ours.
    NotServed,
    /// The object cannot be read.
    Unreadable,
    /// The answer was given up, by a fault of ours.
    Panicked,
    /// Method, media type, size or form of the request is wrong.
    BadRequest,
    /// Too many at once.
    Busy,
    /// The request did not arrive in time.
    Deadline,
}

impl Reason {
    /// As metrics name it.
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

/// An answer, and why.
#[derive(Debug)]
pub struct Verdict {
    /// What is answered.
    pub answer: Answer,
    /// Why.
    pub reason: Reason,
    /// What users are told beside it; nothing of a dry run (ADM-4).
    pub told: Option<Told>,
}

impl Verdict {
    /// Allowed, with nothing to say.
    pub fn allowed(reason: Reason) -> Self {
        Self {
            answer: Answer::allowed(),
            reason,
            told: None,
        }
    }

    /// Of a request that the path does not serve: allowed, since nobody may be held up by our configuration.
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

    /// How it ended, as metrics name it.
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

/// An operation in one of few words.
pub fn operation(name: &str) -> &'static str {
    match name {
        "CREATE" => "CREATE",
        "UPDATE" => "UPDATE",
        "DELETE" => "DELETE",
        "CONNECT" => "CONNECT",
        _ => "other",
    }
}

/// How a review ended, in the words of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The pod gets a patch.
    Patched,
    /// The pod has all that it needs.
    Empty,
    /// Nothing is changed.
    Allowed,
    /// The request is refused.
    Denied,
    /// No verdict was reached.
    Error,
}

impl Ended {
    /// As metrics name it.
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
