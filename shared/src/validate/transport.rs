//! The transport, and queue names on it.

use super::violation::Violations;
use super::{Subject, Violation};
use crate::api::messages;

const PATH: &str = "spec.transport";

/// A transport that is not configured is not a violation but a state, because it may be configured later (VAL-1,
/// VAL-20).
pub(super) fn is_named(subject: &Subject<'_>, found: &mut Violations) {
    if subject.spec.transport.is_empty() {
        found.add(PATH, messages::TRANSPORT_MISSING);
    }
}

/// Another actor has a queue of this name on the same transport; the caller finds it in an index (VAL-16).
#[must_use]
pub fn queue_in_use(queue: &str, owner_namespace: &str, owner_name: &str) -> Violation {
    Violation {
        path: PATH.to_owned(),
        problem: format!("queue {queue} already belongs to {owner_namespace}/{owner_name}"),
        fix: Some("rename this actor or set the transport's nameTemplate".to_owned()),
    }
}
