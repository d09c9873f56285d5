//! Labels by which a workload and we find its pods (POD-9).

use serde_json::{Map, Value};

use crate::api::WorkloadKind;
use crate::names::label;

/// What the workload selects its pods by. It can never change.
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

/// The labels of every pod of a standalone actor; a template may not say otherwise (VAL-10).
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
