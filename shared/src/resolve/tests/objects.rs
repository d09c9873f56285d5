//! Objects as their controllers write them, and helpers to check a resolution.

use serde_json::{Value, json};

use crate::resolve::*;

/// An object with its own UID.
pub(super) fn object(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "models", "uid": format!("{kind}-{name}"), "generation": 3},
    });
    merge(&mut object, rest);
    object
}

/// Applies a JSON merge patch, without removals.
pub(super) fn merge(object: &mut Value, rest: &Value) {
    match (object, rest) {
        (Value::Object(object), Value::Object(rest)) => {
            for (key, value) in rest {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, rest) => *object = rest.clone(),
    }
}

pub(super) fn with(mut object: Value, rest: &Value) -> Value {
    merge(&mut object, rest);
    object
}

/// The object with a controller owner reference to the owner.
pub(super) fn by(owner: &Value, mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "aside", "uid": "u-0"},
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": true,
            "blockOwnerDeletion": true,
        },
    ]);
    object
}

/// A Deployment or `StatefulSet` whose pods have these labels.
pub(super) fn workload(kind: &str, name: &str, labels: &Value, containers: &Value) -> Value {
    object(
        "apps/v1",
        kind,
        name,
        &json!({"spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        }}),
    )
}

pub(super) fn related(objects: &[&Value]) -> Related {
    let mut related = Related::default();
    let kinds = all_related()
        .into_iter()
        .chain(generic::GENERIC.related().iter().copied());
    let kinds: Vec<_> = kinds.collect();
    for object in objects {
        let itself = ObjectRef::of(object).unwrap();
        let kind = kinds.iter().find(|it| **it == itself.group_kind());
        let objects = related.objects.entry(*kind.unwrap()).or_default();
        objects.push((*object).clone());
    }
    related
}

pub(super) fn resolver_of(target: &Value) -> &'static dyn Resolver {
    let itself = ObjectRef::of(target).unwrap();
    let kind = itself.group_kind();
    resolver(kind.group, kind.kind)
}

pub(super) fn resolve(target: &Value, beside: &[&Value]) -> Resolution {
    resolver_of(target).resolve(target, &related(beside))
}

/// The resolved target; also checks that its pods survive a round trip through status.
pub(super) fn found(target: &Value, beside: &[&Value]) -> Target {
    let found = match resolve(target, beside) {
        Resolution::Found(found) => *found,
        other => panic!("{other:?}"),
    };
    let name = target["metadata"]["name"].as_str().unwrap();
    let status = found.to_status("models");
    let read_back = pods_by(resolver_of(target), name, Some(&status));
    assert_eq!(read_back, found.pods);
    assert_eq!(found.chain.first(), ObjectRef::of(target).as_ref());
    found
}

/// The message of a target that must wait.
pub(super) fn waits(target: &Value, beside: &[&Value]) -> String {
    match resolve(target, beside) {
        Resolution::Waiting(finding) => {
            assert_eq!(finding.reason, FindingReason::TargetNotReady);
            finding.message
        }
        other => panic!("{other:?}"),
    }
}

/// Why the target cannot be bound.
pub(super) fn refuses(target: &Value, beside: &[&Value]) -> Finding {
    match resolve(target, beside) {
        Resolution::Refused(finding) => finding,
        other => panic!("{other:?}"),
    }
}

/// Why the target cannot be scaled.
pub(super) fn not_scaled(target: &Value, beside: &[&Value]) -> String {
    match found(target, beside).scale {
        Scale::Refused(why) => why,
        scale => panic!("{scale:?}"),
    }
}

pub(super) fn warnings(target: &Value, beside: &[&Value]) -> Vec<(CaveatReason, String)> {
    let warnings = found(target, beside).warnings.into_iter();
    warnings.map(|it| (it.reason, it.message)).collect()
}

/// The object to scale, as `Kind/name`.
pub(super) fn scaled(target: &Value, beside: &[&Value]) -> String {
    let found = found(target, beside);
    found.scale.object().unwrap().to_string()
}

pub(super) fn chain(target: &Target) -> Vec<String> {
    target.chain.iter().map(ToString::to_string).collect()
}

pub(super) fn unresolved_pods(target: &Value) -> PodMatch {
    let name = target["metadata"]["name"].as_str().unwrap();
    resolver_of(target).unresolved_pods(name)
}

/// Whether a pod with these labels and this controller owner matches.
pub(super) fn has(
    pods: &PodMatch,
    labels: &[(&str, &str)],
    (api_version, kind, name): (&str, &str, &str),
) -> bool {
    let owner = Controller {
        api_version,
        kind,
        name,
    };
    let value = |key: &str| labels.iter().find(|it| it.0 == key).map(|it| it.1);
    pods.matches(value, Some(&owner))
}

pub(super) fn container(name: &'static str, port: Option<u16>) -> ContainerShape<'static> {
    ContainerShape {
        name,
        port,
        ..ContainerShape::default()
    }
}

pub(super) fn url(target: &Target) -> &str {
    target.server.url.as_deref().unwrap()
}
