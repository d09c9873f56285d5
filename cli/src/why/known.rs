//! Actors as the webhook knows them.

use std::sync::Arc;

use asya_shared::names::label;
use asya_shared::resolve::has_intermediate_owners;
use asya_shared::review::{Actor, ProjectedActor};
use serde_json::{Value, json};

use crate::cluster::has_sidecar;

/// A placeholder for times that are missing in files.
const SOME_TIME: &str = "2026-01-01T00:00:00Z";

/// An actor in the pod's namespace.
pub struct KnownActor {
    pub name: String,
    pub object: Value,
    /// As the webhook reads it.
    pub actor: Option<Arc<Actor>>,
}

impl KnownActor {
    /// An actor as the API server returns it.
    pub fn new(object: Value) -> Self {
        // The webhook reads actors from text, from which it borrows.
        let projected = serde_json::from_str::<ProjectedActor>(&object.to_string());
        Self {
            name: object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            actor: projected.ok().map(|it| it.actor),
            object,
        }
    }

    /// An actor as it would be once applied to `namespace` and in effect.
    pub fn from_file(object: &Value, namespace: &str) -> Self {
        let mut object = object.clone();
        let metadata = &mut object["metadata"];
        metadata["namespace"] = json!(namespace);
        for (field, value) in [
            ("uid", "unknown"),
            ("resourceVersion", "0"),
            ("creationTimestamp", SOME_TIME),
        ] {
            if metadata[field].is_null() {
                metadata[field] = json!(value);
            }
        }
        if object["status"]["boundSince"].is_null() {
            object["status"]["boundSince"] = json!(SOME_TIME);
        }
        Self::new(object)
    }

    /// Why pods of an actor with its own workload are never injected.
    pub fn own_workload_text(name: &str) -> String {
        format!(
            "AsyncActor {name} has its own workload (spec.workload), whose pod template has the sidecar; \
             `kubectl asya trace {name}` shows its pods"
        )
    }

    /// Whether the owners of its pods must be looked up through other objects.
    pub fn has_intermediate_owners(&self) -> bool {
        let target = self.actor.as_ref().and_then(|it| it.target.as_ref());
        target.is_some_and(has_intermediate_owners)
    }

    /// The target, as Kind/name.
    pub fn target(&self) -> Option<String> {
        let target = self.actor.as_ref()?.target.as_ref()?;
        Some(format!("{}/{}", target.kind, target.name))
    }

    /// Whether this is a pod of the actor's own workload (spec.workload), to which bindings do not apply.
    pub fn has_own_pod(&self, pod: &Value) -> bool {
        let labels = &pod["metadata"]["labels"];
        let is_named = [label::ASYA, label::ACTOR]
            .iter()
            .any(|key| labels[*key] == *self.name);
        is_named && self.object["spec"]["workloadRef"].is_null() && has_sidecar(pod)
    }

    /// Why a pod has no sidecar according to the operator. Status names only some of the pods for each reason, so for
    /// other pods all reasons are possible.
    pub fn reported_reasons(&self, pod: &str) -> Vec<&str> {
        let reasons = self.object["status"]["pods"]["reasons"].as_array();
        let reasons = reasons.map_or(&[][..], Vec::as_slice);
        let names_pod = |reason: &&Value| {
            let examples = reason["examples"].as_array().into_iter().flatten();
            examples.into_iter().any(|example| example == pod)
        };
        match reasons.iter().find(names_pod) {
            Some(reason) => reason["reason"].as_str().into_iter().collect(),
            None => reasons
                .iter()
                .filter_map(|reason| reason["reason"].as_str())
                .collect(),
        }
    }
}
