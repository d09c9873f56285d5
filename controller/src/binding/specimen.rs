//! Builds the pods that dry runs submit for a target, runs them, and judges whether the sidecar was injected. Only our
//! own probes use these pods.

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

/// Name prefix of every probe pod.
pub const PROBE_NAME: &str = "asya-probe-";
const HASH: &str = "asyaproof";
/// Placeholder where any name will do.
const NAME: &str = "asya-proof";

/// Labels and owner of a pod that matches a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Specimen {
    pub labels: Map<String, Value>,
    /// Controller owner reference.
    pub owner: Value,
}

impl Specimen {
    /// Builds the minimal labels and owner that match, including the label that all pods of the family carry. Returns
    /// `None` if no matching pod can be built.
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

/// Minimal pod spec. A namespace that enforces Pod Security's `restricted` level admits it, and a `LimitRange` fills in
/// the resources.
pub fn least_spec() -> Value {
    json!({
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": NAME, "image": NAME, "ports": [{"containerPort": 8000}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
    })
}

/// Sets requests and limits of all containers to zero, except those of our containers, which a pod template may already
/// contain. A dry run counts against a quota that the target may already use up, so this variant checks only whether
/// there is room for what injection adds.
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

/// Marks the pod as the probe of the actor with this uid, which the webhook injects regardless of status (SAFE-2).
pub fn marked(pod: &Pod, uid: &str) -> Pod {
    let mut pod = pod.clone();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::PROBE.to_owned(), uid.to_owned());
    pod
}

/// Outcome of a dry run.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The API server admits the pod with this actor's sidecar.
    Admitted,
    /// The pod has no sidecar because the webhook was not called, or could not be called.
    Unasked(String),
    /// It admits the pod without the sidecar for this reason.
    LeftAlone(String),
    /// It rejects the pod with this message.
    Refused(String),
}

/// Dry-runs `pod` for the actor with this uid and hash part (see [`judge`]). If only a quota rejects it and the target
/// has all its pods (`complete`), a second dry run without requests decides, since a replaced pod frees its share of
/// the quota. While a pod is missing, the quota must have room for the whole pod.
///
/// # Errors
/// If the API server fails.
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
        // Quotas are evaluated last, so everything else has admitted the pod as it is.
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

/// Whether the webhook left no trace on the pod.
fn is_unasked(answer: &Pod, uid: &str) -> bool {
    let annotations = answer.metadata.annotations.as_ref();
    let said = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    said(annotation::INJECTED_BY) != Some(uid) && said(annotation::NOT_INJECTED).is_none()
}

/// Creates the pod as a dry run; nothing is stored.
///
/// # Errors
/// If the API server rejects the pod or fails.
async fn dry_run(client: &Client, namespace: &str, pod: &Pod) -> kube::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create(&params, pod).await
}

/// Checks that a dry-run pod was injected for the actor with this uid, according to its current spec: `part` is the
/// actor's part of [`InjectedHash`].
///
/// # Errors
/// The reason why the pod does not count as injected.
fn judge(answer: &Pod, uid: &str, part: Option<&str>) -> Result<(), String> {
    let annotations = answer.metadata.annotations.as_ref();
    let said = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    if said(annotation::INJECTED_BY) != Some(uid) {
        let why = said(annotation::NOT_INJECTED);
        let unasked = "the webhook was not called, or did not inject it; check whether the webhook's pods are running";
        return Err(why.unwrap_or(unasked).to_owned());
    }
    if !OURS.into_iter().all(|name| has(answer, name)) {
        return Err(
            "another webhook removes it; check the MutatingWebhookConfigurations for pods"
                .to_owned(),
        );
    }
    let found = said(annotation::INJECTED_HASH).and_then(InjectedHash::parse);
    if found.as_ref().map(|it| &*it.actor) != part {
        return Err(
            "it would get the sidecar of another spec, or of another release of the operator"
                .to_owned(),
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

/// Builds an owner that satisfies the rule.
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
