//! Names derived from the actor's name must be legal (VAL-11). Checked for new actors, and for changes that give other
//! objects these names; otherwise, actors from before the rule stay editable.

use super::violation::Violations;
use super::{Recorded, Subject, Write};
use crate::api::{AsyncActorSpec, Workload, WorkloadKind};

const PATH: &str = "metadata.name";
/// Maximum length of label values and DNS labels.
const LONGEST: usize = 63;
/// A `StatefulSet` appends `-` and a hash of 10 characters to its name for a label on its pods.
const LONGEST_STATEFUL_SET: usize = 52;

/// Checks workload name and pod labels (VAL-11).
pub(super) fn is_valid_for_workload(subject: &Subject<'_>, found: &mut Violations) {
    let kind = kind_of(subject.spec);
    let (bearer, longest) = match kind {
        Some(WorkloadKind::StatefulSet) => ("a StatefulSet", LONGEST_STATEFUL_SET),
        Some(WorkloadKind::Deployment) => ("a Deployment", LONGEST),
        None => ("the label of a pod", LONGEST),
    };
    if is_dns_label(subject.name, longest) {
        return;
    }
    // The workload of the previous kind is deleted before the new one has a pod.
    let changes_kind = match subject.write {
        Write::Create => {
            return found.add(
                PATH,
                &format!(
                    "too long or illegal characters for {bearer}; use at most {longest} of a-z, 0-9 and -, \
                     with a letter or digit at both ends"
                ),
            );
        }
        Write::Update { old } => kind_of(old) != kind,
        Write::Stored(Recorded { workloads, .. }) => {
            !workloads.is_empty() && kind.is_some_and(|kind| !workloads.contains(&kind))
        }
    };
    if changes_kind {
        found.add(
            "spec.workload.kind",
            &format!(
                "the actor's name is too long or has illegal characters for {bearer}, which allows at most {longest} of \
                 a-z, 0-9 and -, with a letter or digit at both ends; keep the kind, or create an AsyncActor with another \
                 name"
            ),
        );
    }
}

fn kind_of(spec: &AsyncActorSpec) -> Option<WorkloadKind> {
    spec.workload.as_ref().map(Workload::effective_kind)
}

/// Checks names of queue and dead letter queue (VAL-11).
pub(super) fn is_valid_for_queues(subject: &Subject<'_>, found: &mut Violations) {
    let former = match subject.write {
        Write::Create => None,
        Write::Update { old } => Some(&*old.transport),
        Write::Stored(Recorded { transport, .. }) => match transport {
            Some(transport) => Some(transport),
            None => return,
        },
    };
    let (path, fix) = match former {
        None => (PATH, ""),
        Some(former) if former != subject.spec.transport => (
            "spec.transport",
            "; keep the transport, or create an AsyncActor with another name",
        ),
        Some(_) => return,
    };
    let Ok(transport) = subject.transports.usable(&subject.spec.transport) else {
        return;
    };
    for queue in transport.illegal_names(subject.namespace, subject.name) {
        let product = transport.broker().product();
        found.add(
            path,
            &format!("too long or illegal characters for {product} queue {queue}{fix}"),
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

#[cfg(test)]
mod tests;
