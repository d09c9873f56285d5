//! Names derived from the actor's name must be legal (VAL-11). Only checked for new actors: existing ones work.

use super::violation::Violations;
use super::{Subject, Write};
use crate::api::WorkloadKind;

const PATH: &str = "metadata.name";
/// Maximum length of label values and DNS labels.
const LONGEST: usize = 63;
/// A `StatefulSet` appends `-` and a hash of 10 characters to its name for a label on its pods.
const LONGEST_STATEFUL_SET: usize = 52;

/// Checks workload name and pod labels (VAL-11).
pub(super) fn is_valid_for_workload(subject: &Subject<'_>, found: &mut Violations) {
    if !matches!(subject.write, Write::Create) {
        return;
    }
    let workload = subject.spec.workload.as_ref();
    let (bearer, longest) = match workload.map(crate::api::Workload::effective_kind) {
        Some(WorkloadKind::StatefulSet) => ("a StatefulSet", LONGEST_STATEFUL_SET),
        Some(WorkloadKind::Deployment) => ("a Deployment", LONGEST),
        None => ("the label of a pod", LONGEST),
    };
    if !is_dns_label(subject.name, longest) {
        found.add(
            PATH,
            &format!(
                "too long or illegal characters for {bearer}; use at most {longest} of a-z, 0-9 and -, \
                 with a letter or digit at both ends"
            ),
        );
    }
}

/// Checks names of queue and dead letter queue (VAL-11).
pub(super) fn is_valid_for_queues(subject: &Subject<'_>, found: &mut Violations) {
    let (Write::Create, Ok(transport)) = (
        subject.write,
        subject.transports.usable(&subject.spec.transport),
    ) else {
        return;
    };
    for queue in transport.illegal_names(subject.namespace, subject.name) {
        let product = transport.broker().product();
        found.add(
            PATH,
            &format!("too long or illegal characters for {product} queue {queue}"),
        );
    }
}

fn is_dns_label(name: &str, max_length: usize) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty()
        && name.len() <= max_length
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
