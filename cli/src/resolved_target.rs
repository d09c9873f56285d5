//! Reads the object that an actor binds, and resolves it.

use asya_shared::api::WorkloadRef;
use asya_shared::probe::{self, ProbeMetadata};
use asya_shared::resolve::{
    Controller, Finding, FindingReason, GroupKind, ObjectRef, PodMatch, Related, Resolution,
    RolloutMethod, Target, controller_of, resolver,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::{ApiFailure, Cluster, resource};

/// How many owners are followed up from a target (RES-4).
const MAX_OWNERS: usize = 4;
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[derive(Clone, Debug)]
pub struct Bound {
    pub target: Target,
    /// The objects that the operator annotates to roll pods, and the workloads that are rolled as a result.
    pub rolled: Vec<RolledObject>,
    /// The target's pods that are not terminating.
    pub pods: Vec<Value>,
    pub budgets: Vec<Value>,
    /// Objects that could not be read.
    pub notes: Vec<String>,
}

/// An object that the operator annotates to roll pods, or a workload that is rolled as a result.
#[derive(Clone, Debug)]
pub struct RolledObject {
    pub reference: ObjectRef,
    pub body: Value,
}

/// Why a target is not resolved.
#[derive(Debug)]
pub enum Unresolved {
    /// As the operator would report it.
    Finding(Finding),
    /// It cannot be read.
    Unknown(ApiFailure),
}

impl From<ApiFailure> for Unresolved {
    fn from(failure: ApiFailure) -> Self {
        Self::Unknown(failure)
    }
}

/// Reads and resolves a target, as the operator does.
///
/// # Errors
/// If it does not resolve, or cannot be read.
pub async fn resolve(
    cluster: &Cluster,
    namespace: &str,
    target: &WorkloadRef,
) -> Result<Bound, Unresolved> {
    let existing = existing(cluster, namespace, target).await?;
    let mut notes = Vec::new();
    let resolver = resolver(target.group(), &target.kind);
    let kinds = resolver.related();
    let related = if kinds.is_empty() {
        owners(cluster, namespace, &existing, &mut notes).await?
    } else {
        dependents(cluster, namespace, kinds, &mut notes).await?
    };
    let target = match resolver.resolve(&existing, &related) {
        Resolution::Found(target) => *target,
        Resolution::Waiting(finding) | Resolution::Refused(finding) => {
            return Err(Unresolved::Finding(finding));
        }
    };
    let rolled = read_all(cluster, namespace, rolled(&target)).await?;
    let pods = pods(cluster, namespace, &target.pods).await?;
    let budgets = cluster
        .list(&resource::<PodDisruptionBudget>(), Some(namespace))
        .await;
    let budgets = budgets
        .map_err(|failure| notes.push(failure.text))
        .unwrap_or_default();
    Ok(Bound {
        target,
        rolled,
        pods,
        budgets,
        notes,
    })
}

/// The object that an actor binds.
async fn existing(
    cluster: &Cluster,
    namespace: &str,
    target: &WorkloadRef,
) -> Result<Value, Unresolved> {
    let missing = |reason, text: String| Unresolved::Finding(Finding::new(reason, text));
    let group_kind = GroupKind {
        group: target.group(),
        kind: &target.kind,
    };
    let Some(api) = cluster.kind(group_kind).await? else {
        let text = format!("{group_kind} is not installed; the actor binds once it is");
        return Err(missing(FindingReason::KindNotInstalled, text));
    };
    let WorkloadRef { kind, name, .. } = target;
    let existing = cluster.get(&api, Some(namespace), name).await?;
    existing.ok_or_else(|| {
        let text = format!(
            "{kind}/{name} does not exist in namespace {namespace}; the actor binds once it does"
        );
        missing(FindingReason::TargetNotFound, text)
    })
}

/// Those of the objects that exist.
async fn read_all(
    cluster: &Cluster,
    namespace: &str,
    references: Vec<ObjectRef>,
) -> Result<Vec<RolledObject>, ApiFailure> {
    let mut found = Vec::new();
    for reference in references {
        let Some(api) = cluster.kind(reference.group_kind()).await? else {
            continue;
        };
        let body = cluster.get(&api, Some(namespace), &reference.name).await?;
        found.extend(body.map(|body| RolledObject { reference, body }));
    }
    Ok(found)
}

/// The target's pods that are neither finished nor terminating.
async fn pods(
    cluster: &Cluster,
    namespace: &str,
    expected: &PodMatch,
) -> Result<Vec<Value>, ApiFailure> {
    let params = ListParams::default()
        .labels(&expected.labels.to_string())
        .fields(UNFINISHED);
    let mut pods = cluster
        .list_with(&resource::<Pod>(), Some(namespace), params)
        .await?;
    pods.retain(|pod| belongs_to(pod, expected));
    Ok(pods)
}

/// A new pod of the target, constructed like the operator's probe.
pub fn new_pod(found: &Bound, metadata: Option<&ProbeMetadata>) -> Option<Value> {
    let bodies = || found.rolled.iter().map(|it| &it.body);
    let of_template = metadata
        .and_then(|metadata| bodies().find_map(|body| probe::pod_without_sidecar(body, metadata)));
    of_template
        .or_else(|| found.pods.first().map(probe::from_running_pod))
        .or_else(|| probe::minimal_pod(metadata?))
}

/// The objects of the kinds that the resolver follows from a target down to its workload.
async fn dependents(
    cluster: &Cluster,
    namespace: &str,
    kinds: &[GroupKind<'static>],
    notes: &mut Vec<String>,
) -> Result<Related, ApiFailure> {
    let mut related = Related::default();
    for kind in kinds {
        let Some(api) = cluster.kind(*kind).await? else {
            continue;
        };
        let mut objects = match cluster.list(&api, Some(namespace)).await {
            Ok(objects) => objects,
            Err(failure) => {
                notes.push(failure.text);
                continue;
            }
        };
        for object in &mut objects {
            // Items of a list lack apiVersion and kind.
            object["apiVersion"] = json!(api.api_version);
            object["kind"] = json!(api.kind);
        }
        related.objects.insert(*kind, objects);
    }
    Ok(related)
}

/// The owners of a target that is itself a workload, nearest first.
async fn owners(
    cluster: &Cluster,
    namespace: &str,
    existing: &Value,
    notes: &mut Vec<String>,
) -> Result<Related, ApiFailure> {
    let mut related = Related::default();
    let mut next = controller_of(existing);
    while let Some(owner) = next.take().filter(|_| related.owners.len() < MAX_OWNERS) {
        let Some(api) = cluster.kind(owner.group_kind()).await? else {
            break;
        };
        let body = match cluster.get(&api, Some(namespace), &owner.name).await {
            Ok(body) => body,
            Err(failure) => {
                notes.push(failure.text);
                None
            }
        };
        let is_owner = |body: &Value| body["metadata"]["uid"].as_str() == owner.uid.as_deref();
        let Some(body) = body.filter(is_owner) else {
            break;
        };
        next = controller_of(&body);
        related.owners.push(body);
    }
    Ok(related)
}

/// The objects that the operator annotates, and the workloads that are rolled as a result.
fn rolled(target: &Target) -> Vec<ObjectRef> {
    match &target.roll {
        RolloutMethod::AnnotateTemplate(workloads) => workloads.clone(),
        RolloutMethod::Annotate(object, _) if *object != target.workload => {
            vec![object.clone(), target.workload.clone()]
        }
        RolloutMethod::Annotate(object, _) => vec![object.clone()],
        RolloutMethod::Evict => vec![target.workload.clone()],
    }
}

/// Whether an existing pod that is not terminating belongs to a target.
fn belongs_to(pod: &Value, expected: &PodMatch) -> bool {
    let metadata = &pod["metadata"];
    let owner = controller_of(pod);
    let owner = owner.as_ref().map(|it| Controller {
        api_version: &it.api_version,
        kind: &it.kind,
        name: &it.name,
    });
    let label = |key: &str| metadata["labels"][key].as_str();
    metadata["deletionTimestamp"].is_null() && expected.matches(label, owner.as_ref())
}

#[cfg(test)]
mod tests {
    use asya_shared::resolve::{OwnerRule, Selector};

    use super::*;

    /// RES-5
    #[test]
    fn pods_of_a_target_have_its_labels_and_its_controller() {
        let expected = PodMatch {
            labels: Selector::of_labels([("app", "phi")]),
            owner: OwnerRule::of_workload("apps/v1", "StatefulSet", "phi").unwrap(),
        };
        let pod = |owner: &str, app: &str| {
            json!({"metadata": {
                "labels": {"app": app},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "controller": true}],
            }})
        };
        let mut terminating = pod("phi", "phi");
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for (pod, expectation) in [
            (pod("phi", "phi"), true),
            (pod("other", "phi"), false),
            (pod("phi", "other"), false),
            (terminating, false),
        ] {
            assert_eq!(belongs_to(&pod, &expected), expectation, "{pod}");
        }
    }
}
