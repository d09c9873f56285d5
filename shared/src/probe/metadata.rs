//! Labels and owner of a pod that a target's selector and owner rule match, without a pod of the target.

use kube::Resource;
use serde_json::{Map, Value, json};

use crate::api::AsyncActor;
use crate::resolve::{
    GroupKind, Integration, Operator, OwnerRule, POD_TEMPLATE_HASH, PodMatch, Requirement,
};

/// Name prefix of every probe pod.
pub const PROBE_NAME_PREFIX: &str = "asya-probe-";
const PLACEHOLDER_HASH: &str = "asyaprobe";
/// Placeholder where any name is valid.
const PLACEHOLDER_NAME: &str = "asya-probe";
const PLACEHOLDER_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Labels and owner of a pod that matches a target.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeMetadata {
    /// Labels of the pod.
    pub labels: Map<String, Value>,
    /// Controller owner reference.
    pub owner: Value,
}

impl ProbeMetadata {
    /// Builds the minimal labels and owner that match, including the label that all pods of the integration carry.
    /// Returns `None` if no matching pod can be built.
    #[must_use]
    pub fn of(pods: &PodMatch, integration: Integration) -> Option<Self> {
        let mut labels = Map::new();
        for Requirement { key, operator } in pods.labels.requirements() {
            match operator {
                Operator::In(values) => labels.insert(key.clone(), json!(values.first()?)),
                Operator::Exists => labels.insert(key.clone(), json!("")),
                Operator::NotIn(_) | Operator::DoesNotExist => None,
            };
        }
        if let Some(key) = integration.label().filter(|key| !labels.contains_key(*key)) {
            labels.insert(key.to_owned(), json!(PLACEHOLDER_NAME));
        }
        let (kind, name) = owner(&pods.owner)?;
        if kind.kind == "ReplicaSet" {
            labels.insert(POD_TEMPLATE_HASH.to_owned(), json!(PLACEHOLDER_HASH));
        }
        let api_version = if kind.group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{}/v1", kind.group)
        };
        let owner = json!({
            "apiVersion": api_version, "kind": kind.kind, "name": name,
            "uid": PLACEHOLDER_UID, "controller": true,
        });
        Some(Self { labels, owner })
    }
}

/// An owner reference to a controller that no actor binds, because no target has pods of this kind: the webhook leaves
/// a pod with it unchanged.
#[must_use]
pub fn unbound_owner() -> Value {
    json!({
        "apiVersion": AsyncActor::api_version(&()), "kind": AsyncActor::kind(&()), "name": PLACEHOLDER_NAME, "uid": PLACEHOLDER_UID,
        "controller": true,
    })
}

/// Minimal pod spec. A namespace that enforces Pod Security's `restricted` level admits it, and a `LimitRange` fills in
/// the resources. It names no user, because `OpenShift` assigns one and refuses any other.
#[must_use]
pub fn minimal_spec() -> Value {
    json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": PLACEHOLDER_NAME, "image": PLACEHOLDER_NAME, "ports": [{"containerPort": 8000}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    })
}

/// Builds an owner that satisfies the rule.
fn owner(rule: &OwnerRule) -> Option<(GroupKind<'static>, String)> {
    match rule {
        OwnerRule::Kind(kind) => Some((*kind, PLACEHOLDER_NAME.to_owned())),
        OwnerRule::Named { kind, name } => Some((*kind, name.clone())),
        OwnerRule::ReplicaSetOf { deployment } => {
            let kind = GroupKind {
                group: "apps",
                kind: "ReplicaSet",
            };
            let longest = 253 - 1 - PLACEHOLDER_HASH.len();
            let stem = deployment.get(..longest).unwrap_or(deployment);
            Some((kind, format!("{stem}-{PLACEHOLDER_HASH}")))
        }
        OwnerRule::AnyOf(rules) => rules.iter().find_map(owner),
    }
}
