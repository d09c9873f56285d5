//! The transport and what must be free on it.

use super::violation::Findings;
use super::{Subject, Violation};
use crate::api::messages;

const PATH: &str = "spec.transport";

/// VAL-1. A name that is not configured is no violation but a state: the configuration may follow (VAL-20).
pub(super) fn is_named(subject: &Subject<'_>, found: &mut Findings) {
    if subject.spec.transport.is_empty() {
        found.add(PATH, messages::TRANSPORT_MISSING);
    }
}

/// VAL-16: another actor has a queue of this name on the same transport. Who that is, an index knows.
#[must_use]
pub fn queue_taken(queue: &str, owner_namespace: &str, owner_name: &str) -> Violation {
    Violation {
        path: PATH.to_owned(),
        problem: format!("queue {queue} already belongs to {owner_namespace}/{owner_name}"),
        fix: Some("rename this actor or set the transport's nameTemplate".to_owned()),
    }
}
