//! Previewed changes, as YAML diffs.

use asya_shared::names::annotation;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Fields set by the API server, which differ in every object and every write.
const SERVER_FIELDS: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
    "selfLink",
];
/// Annotations that repeat the rest of the object, or count its writes.
const DERIVED: [&str; 3] = [
    annotation::APPLIED_HASH,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];

/// The change to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    Create,
    Change,
    /// The webhook adds containers to a pod.
    Inject,
    /// No longer used.
    Retire,
    Unchanged,
}

impl ChangeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Inject => "inject",
            Self::Retire => "retire",
            Self::Unchanged => "unchanged",
        }
    }
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// As Kind/name.
    pub object: String,
    pub action: ChangeKind,
    /// Lines that begin with a space, + or -; empty if nothing changes or the content is unknown.
    pub diff: String,
}

impl Change {
    /// The change of an existing object, or the creation of a new one.
    pub fn of(object: impl Into<String>, before: Option<&Value>, after: &Value) -> Self {
        let old = before.map(normalized);
        let new = normalized(after);
        let action = match &old {
            None => ChangeKind::Create,
            Some(old) if *old == new => ChangeKind::Unchanged,
            Some(_) => ChangeKind::Change,
        };
        Self {
            object: object.into(),
            action,
            diff: diff(old.as_ref(), &new),
        }
    }

    /// The change of a pod by its review.
    pub fn of_pod(object: impl Into<String>, before: &Value, after: &Value) -> Self {
        let mut change = Self::of(object, Some(&shown_pod(before)), &shown_pod(after));
        if change.action == ChangeKind::Change {
            change.action = ChangeKind::Inject;
        }
        change
    }

    /// A change without a diff.
    pub fn bare(object: impl Into<String>, action: ChangeKind) -> Self {
        Self {
            object: object.into(),
            action,
            diff: String::new(),
        }
    }
}

/// The parts of a pod that its template or the webhook determines; the rest is made up by the preview.
fn shown_pod(pod: &Value) -> Value {
    let mut shown = pod.clone();
    if let Some(metadata) = shown["metadata"].as_object_mut() {
        metadata.retain(|field, _| ["labels", "annotations"].contains(&&**field));
    }
    if let Some(labels) = shown["metadata"]["labels"].as_object_mut() {
        labels.remove(asya_shared::resolve::POD_TEMPLATE_HASH);
    }
    shown
}

/// The object without the fields set by the API server.
pub fn normalized(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !SERVER_FIELDS.contains(&&**field));
        if let Some(annotations) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            annotations.retain(|key, _| !DERIVED.contains(&&**key));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    drop_nulls(&mut object);
    object
}

/// Removes null members, which mean the same as absent ones.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn diff(before: Option<&Value>, after: &Value) -> String {
    let after = yaml(after);
    let Some(before) = before.map(yaml) else {
        let added: Vec<_> = after.lines().flat_map(|line| ["+", line, "\n"]).collect();
        return added.concat();
    };
    let diff = TextDiff::from_lines(&before, &after);
    let mut unified = diff.unified_diff();
    unified.context_radius(CONTEXT);
    unified.to_string()
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(replicas: Option<i32>, version: &str) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {
                "name": "phi", "resourceVersion": version, "managedFields": [version],
                "annotations": {"asya.sh/applied-hash": version},
            },
            "spec": {"replicas": replicas}, "status": {"replicas": version},
        })
    }

    #[test]
    fn only_what_users_and_operator_set_counts() {
        for (before, after, action, line) in [
            (
                None,
                object(Some(1), "1"),
                ChangeKind::Create,
                "+  replicas: 1",
            ),
            (
                Some(object(Some(1), "1")),
                object(Some(1), "2"),
                ChangeKind::Unchanged,
                "",
            ),
            (
                Some(object(Some(1), "1")),
                object(Some(2), "2"),
                ChangeKind::Change,
                "-  replicas: 1",
            ),
            (
                Some(object(None, "1")),
                object(Some(2), "2"),
                ChangeKind::Change,
                "+  replicas: 2",
            ),
        ] {
            let found = Change::of("Deployment/phi", before.as_ref(), &after);
            assert_eq!(found.action, action, "{before:?}");
            assert!(found.diff.contains(line), "{}", found.diff);
            assert_eq!(found.diff.is_empty(), action == ChangeKind::Unchanged);
            assert!(!found.diff.contains("resourceVersion"), "{}", found.diff);
        }
    }

    #[test]
    fn pods_are_shown_without_what_the_preview_makes_up() {
        let pod = |containers: Value| {
            json!({
                "metadata": {
                    "generateName": "asya-probe-", "ownerReferences": [{"name": "x"}],
                    "labels": {"app": "phi", "pod-template-hash": "asyaprobe"},
                },
                "spec": {"containers": containers},
            })
        };
        let (before, after) = (pod(json!(["model"])), pod(json!(["model", "asya-sidecar"])));
        let found = Change::of_pod("Pod", &before, &after);
        assert_eq!(found.action, ChangeKind::Inject);
        assert!(found.diff.contains("asya-sidecar"), "{}", found.diff);
        assert!(!found.diff.contains("asya-pro"), "{}", found.diff);
        assert_eq!(
            Change::of_pod("Pod", &before, &before).action,
            ChangeKind::Unchanged
        );
    }
}
