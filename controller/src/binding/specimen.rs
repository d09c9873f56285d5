//! What a pod must say of itself to be one of a target's, and whether it came back with the sidecar: for dry runs,
//! which nobody else makes.

use std::collections::BTreeMap;

use asya_shared::inject::bound::InjectedHash;
use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER, annotation};
use asya_shared::resolve::{
    Family, GroupKind, Operator, OwnerRule, POD_TEMPLATE_HASH, PodMatch, Requirement,
};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

/// What the names of all pods in dry runs begin with.
pub const PROBE_NAME: &str = "asya-probe-";
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

/// The spec of the least pod: a namespace that enforces Pod Security's `restricted` takes it, and one with a `LimitRange`
/// says itself what it asks for.
pub fn least_spec() -> Value {
    json!({
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": NAME, "image": NAME, "ports": [{"containerPort": 8000}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    })
}

/// The same pod with containers that ask for nothing; ours, which a pod template may have already, ask as before. A dry
/// run counts against a quota that the target may fill: this one asks whether there is room for what is added.
pub fn without_requests(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.resources = None;
        let init = spec.init_containers.iter_mut().flatten();
        let all = spec.containers.iter_mut().chain(init);
        for container in all.filter(|it| !is_ours(&it.name)) {
            let nothing = ["cpu", "memory"].map(|name| (name.to_owned(), Quantity("0".to_owned())));
            let nothing = Some(BTreeMap::from(nothing));
            container.resources = Some(ResourceRequirements {
                requests: nothing.clone(),
                limits: nothing,
                ..ResourceRequirements::default()
            });
        }
    }
    pod
}

/// The same pod as the probe of the actor with this uid, which the webhook injects whatever status says (SAFE-2).
pub fn marked(pod: &Pod, uid: &str) -> Pod {
    let mut pod = pod.clone();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::PROBE.to_owned(), uid.to_owned());
    pod
}

/// What a dry run has shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The API server would admit the pod, with the sidecar of this actor.
    Admitted,
    /// It would admit it without, because the webhook was not asked.
    Unasked(String),
    /// It would admit it without, for this reason.
    LeftAlone(String),
    /// It would refuse it, with this answer.
    Refused(String),
}

/// Asks the API server what would become of `pod`, one of the actor's with this uid and part (see [`judge`]). What only a
/// quota refuses is asked again with containers that ask for nothing, where the target has all its pods: one that is
/// replaced leaves its place. While one is missing, what is missing is exactly that place.
///
/// # Errors
/// When the API server fails.
pub async fn ask(
    client: &Client,
    namespace: &str,
    pod: &Pod,
    (uid, part): (&str, Option<&str>),
    complete: bool,
) -> kube::Result<Shown> {
    let first = shown(dry_run(client, namespace, pod).await, uid, part)?;
    let Shown::Refused(why) = &first else {
        return Ok(first);
    };
    if !is_of_quota(why) || !complete {
        return Ok(first);
    }
    let second = dry_run(client, namespace, &without_requests(pod)).await;
    Ok(match shown(second, uid, part)? {
        // Quotas are asked last, so everything else has admitted the pod as it is.
        Shown::Refused(other) if !is_of_quota(&other) && why.contains(EXCEEDED) => Shown::Admitted,
        Shown::Refused(other) if !is_of_quota(&other) => first,
        second => second,
    })
}

const OURS: [&str; 2] = [RUNTIME_CONTAINER, SIDECAR_CONTAINER];

fn is_ours(container: &str) -> bool {
    OURS.contains(&container)
}

const EXCEEDED: &str = "exceeded quota";

fn is_of_quota(answer: &str) -> bool {
    answer.contains(EXCEEDED) || answer.contains("failed quota")
}

fn shown(answer: kube::Result<Pod>, uid: &str, part: Option<&str>) -> kube::Result<Shown> {
    match answer {
        Ok(pod) => Ok(match judge(&pod, uid, part) {
            Ok(()) => Shown::Admitted,
            Err(why) if is_unasked(&pod, uid) => Shown::Unasked(why),
            Err(why) => Shown::LeftAlone(why),
        }),
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {
            Ok(Shown::Unasked(status.message))
        }
        Err(kube::Error::Api(status))
            if (400..500).contains(&status.code) && status.code != 429 =>
        {
            Ok(Shown::Refused(status.message))
        }
        Err(error) => Err(error),
    }
}

/// Whether the webhook has left no trace on a pod.
fn is_unasked(answer: &Pod, uid: &str) -> bool {
    let annotations = answer.metadata.annotations.as_ref();
    let said = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    said(annotation::INJECTED_BY) != Some(uid) && said(annotation::NOT_INJECTED).is_none()
}

/// What would become of a pod; nothing is made.
///
/// # Errors
/// When the API server refuses it or fails.
async fn dry_run(client: &Client, namespace: &str, pod: &Pod) -> kube::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create(&params, pod).await
}

/// Whether a pod that was tried came back as one of the actor with this uid, with what its spec asks for: that part of
/// [`InjectedHash`] is the actor's.
///
/// # Errors
/// Why it would be none.
fn judge(answer: &Pod, uid: &str, part: Option<&str>) -> Result<(), String> {
    let annotations = answer.metadata.annotations.as_ref();
    let said = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    if said(annotation::INJECTED_BY) != Some(uid) {
        let why = said(annotation::NOT_INJECTED);
        let unasked = "the webhook was not asked, or left it alone; see whether its pods run";
        return Err(why.unwrap_or(unasked).to_owned());
    }
    if !OURS.into_iter().all(|name| has(answer, name)) {
        return Err("another webhook removes it; see the MutatingWebhookConfigurations that are asked about pods".to_owned());
    }
    let found = said(annotation::INJECTED_HASH).and_then(InjectedHash::parse);
    if found.as_ref().map(|it| &*it.actor) != part {
        return Err(
            "it would be that of another spec, or of another release of the operator".to_owned(),
        );
    }
    Ok(())
}

fn has(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let init = spec.init_containers.iter().flatten();
    spec.containers.iter().chain(init).any(|it| it.name == name)
}

/// An owner that fits the rule.
fn owner(rule: &OwnerRule) -> Option<(GroupKind<'static>, String)> {
    match rule {
        OwnerRule::Kind(kind) => Some((*kind, NAME.to_owned())),
        OwnerRule::Named { kind, name } => Some((*kind, name.clone())),
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

#[cfg(test)]
mod tests;
