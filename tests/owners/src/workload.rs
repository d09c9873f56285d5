//! Helpers that simulated owners share.

use serde_json::{Map, Value, json};

use super::{Kind, RecordingClient};
use crate::error::Result;

/// A controller owner reference to an object.
pub(super) fn controlled_by(kind: Kind, owner: &Value) -> Value {
    json!([{
        "apiVersion": kind.api_version(), "kind": kind.kind,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Whether `owner` is the controller of `object`.
pub(super) fn is_of(object: &Value, owner: &Value) -> bool {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.is_some_and(|all| {
        all.iter()
            .any(|it| it["controller"] == true && it["uid"] == owner["metadata"]["uid"])
    })
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

/// A copy of a map without the dropped keys.
pub(super) fn without(map: &Value, dropped: impl Fn(&str) -> bool) -> Map<String, Value> {
    let pairs = map.as_object().into_iter().flatten();
    let kept = pairs.filter(|(key, _)| !dropped(key));
    kept.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Inserts all of `more` into the map at `place`, creating it if necessary.
pub(super) fn put_all(place: &mut Value, more: &Map<String, Value>) {
    if !place.is_object() {
        *place = json!({});
    }
    for (key, value) in more {
        place[key] = value.clone();
    }
}

/// A hash of a desired state, short enough for a label value.
pub(super) fn hash(wanted: &Value) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(wanted.to_string());
    let first = digest.first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

/// Deletes an object by name, if `owner` is its controller.
pub(super) async fn delete_of(
    client: &RecordingClient,
    kind: Kind,
    name: &str,
    owner: &Value,
) -> Result<()> {
    match client.get(kind, name).await? {
        Some(live) if is_of(&live, owner) => client.delete(kind, &live).await,
        _ => Ok(()),
    }
}

/// Creates an HPA for an owner's Deployment, unless it exists.
pub(super) async fn autoscaler(
    client: &RecordingClient,
    (kind, owner): (Kind, &Value),
    deployment: &str,
    spec: &Value,
) -> Result<()> {
    if client.get(Kind::HPA, deployment).await?.is_some() {
        return Ok(());
    }
    let number = |key: &str| spec.get(key).cloned().unwrap_or(json!(1));
    let wanted = json!({
        "metadata": {"name": deployment, "ownerReferences": controlled_by(kind, owner)},
        "spec": {
            "minReplicas": number("minReplicas"),
            "maxReplicas": number("maxReplicas"),
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80},
            }}],
        },
    });
    client.create(Kind::HPA, &wanted).await.map(drop)
}
