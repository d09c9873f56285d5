//! What a pod must say of itself to be one of a target's: for dry runs, which nobody else makes.

use asya_shared::resolve::{
    Family, GroupKind, Operator, OwnerRule, POD_TEMPLATE_HASH, PodMatch, Requirement,
};
use serde_json::{Map, Value, json};

const HASH: &str = "asyaproof";
/// Of what has any name.
const NAME: &str = "asya-proof";

/// Labels and owner of a pod that would be one of a target's.
#[derive(Clone, Debug, PartialEq)]
pub struct Specimen {
    /// Its labels.
    pub labels: Map<String, Value>,
    /// Its controller ownerReference.
    pub owner: Value,
}

impl Specimen {
    /// The least that matches, with the label that all pods of the family carry; `None` where nothing can be made up that
    /// does.
    pub fn of(pods: &PodMatch, family: Family) -> Option<Self> {
        let mut labels = Map::new();
        for Requirement { key, operator } in pods.labels.requirements() {
            match operator {
                Operator::In(values) => labels.insert(key.clone(), json!(values.first()?)),
                Operator::Exists => labels.insert(key.clone(), json!("")),
                Operator::NotIn(_) | Operator::DoesNotExist => None,
            };
        }
        if let Some(key) = family.label().filter(|key| !labels.contains_key(*key)) {
            labels.insert(key.to_owned(), json!(NAME));
        }
        let (kind, name) = owner(&pods.owner)?;
        if kind.kind == "ReplicaSet" {
            labels.insert(POD_TEMPLATE_HASH.to_owned(), json!(HASH));
        }
        let api_version = if kind.group.is_empty() {
            "v1".to_owned()
        } else {
            format!("{}/v1", kind.group)
        };
        let owner = json!({
            "apiVersion": api_version, "kind": kind.kind, "name": name,
            "uid": "00000000-0000-0000-0000-000000000000", "controller": true,
        });
        Some(Self { labels, owner })
    }
}

/// The spec of the least pod: it asks for nothing, and a namespace that enforces Pod Security's `restricted` takes it.
pub fn least_spec() -> Value {
    let nothing = json!({"cpu": "0", "memory": "0"});
    json!({
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": NAME, "image": NAME, "ports": [{"containerPort": 8000}],
            "resources": {"requests": nothing, "limits": nothing},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    })
}

/// An owner that fits the rule.
fn owner(rule: &OwnerRule) -> Option<(GroupKind<'static>, String)> {
    match rule {
        OwnerRule::Kind(kind) => Some((*kind, NAME.to_owned())),
        OwnerRule::Named { kind, name } => Some((*kind, name.clone())),
        OwnerRule::Generated {
            kind,
            prefix,
            suffix,
        } => Some((*kind, format!("{prefix}{}", "x".repeat(*suffix)))),
        OwnerRule::ReplicaSetOf { deployment } => {
            let kind = GroupKind {
                group: "apps",
                kind: "ReplicaSet",
            };
            let longest = 253 - 1 - HASH.len();
            let stem = deployment.get(..longest).unwrap_or(deployment);
            Some((kind, format!("{stem}-{HASH}")))
        }
        OwnerRule::AnyOf(rules) => rules.iter().find_map(owner),
    }
}
