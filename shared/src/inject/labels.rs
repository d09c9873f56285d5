//! Labels by which workloads and the operator select pods (POD-9).

use serde_json::{Map, Value};

use crate::api::WorkloadKind;
use crate::names::label;

/// The workload's label selector, which is immutable.
#[must_use]
pub fn selector(actor: &str, kind: WorkloadKind) -> [(&'static str, String); 3] {
    let kind = match kind {
        WorkloadKind::Deployment => "deployment",
        WorkloadKind::StatefulSet => "statefulset",
    };
    [
        (label::APP, actor.to_owned()),
        (label::ASYA, actor.to_owned()),
        (label::WORKLOAD, kind.to_owned()),
    ]
}

/// The labels on every pod of a standalone actor; a template must not set them to other values (VAL-10).
#[must_use]
pub fn pod_labels(actor: &str, kind: WorkloadKind) -> [(&'static str, String); 4] {
    let [app, asya, workload] = selector(actor, kind);
    [app, asya, workload, (label::ACTOR, actor.to_owned())]
}

pub(super) fn to_json<const N: usize>(labels: [(&'static str, String); N]) -> Map<String, Value> {
    labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect()
}
