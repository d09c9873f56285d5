//! Availability of a target's pods. Pods without an actor's label are watched by metadata only (BIND-62), so their
//! readiness is read from the API server, and only while pods are being replaced.

use std::collections::BTreeSet;

use asya_shared::resolve::{Controller, GroupKind, ObjectRef, PodMatch, Target};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::rollout::{Availability, TargetObject, UnreadyPod, ray_workers};
use crate::record::{Key, UNFINISHED};

/// Lists the target's pods: their availability, and the UIDs of those that are not terminating.
pub(super) async fn observe(
    context: &Context,
    key: &Key,
    target: &Target,
    objects: &[TargetObject],
) -> Result<(Availability, BTreeSet<Box<str>>), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = ListParams::default()
        .labels(&target.pods.labels.to_string())
        .fields(UNFINISHED);
    let pods = api.list(&params).await.map_err(Error::Api)?;
    let mut desired: Vec<_> = objects
        .iter()
        .filter_map(|it| it.desired_replicas)
        .collect();
    for cluster in ray_clusters(target, objects) {
        let body = context
            .bindings
            .read_object(&context.client, &key.namespace, cluster);
        let body = body.await.map_err(Error::Api)?;
        desired.extend(body.as_ref().and_then(ray_workers));
    }
    let active = pods.items.iter().map(|pod| &pod.metadata);
    let active = active.filter(|it| it.deletion_timestamp.is_none());
    let uids = active.filter_map(|it| it.uid.as_deref());
    let availability = Availability {
        desired_replicas: (!desired.is_empty()).then(|| desired.iter().sum()),
        ..availability(&pods.items, &target.pods)
    };
    Ok((availability, uids.map(Into::into).collect()))
}

/// The `RayCluster`s of a `RayService`, which does not specify the number of workers itself.
fn ray_clusters<'a>(
    target: &'a Target,
    objects: &'a [TargetObject],
) -> impl Iterator<Item = &'a ObjectRef> {
    let kind = GroupKind {
        group: "ray.io",
        kind: "RayCluster",
    };
    let clusters = target
        .chain
        .iter()
        .filter(move |object| object.group_kind() == kind);
    clusters.filter(|cluster| !objects.iter().any(|known| known.object == **cluster))
}

fn availability(pods: &[Pod], expected: &PodMatch) -> Availability {
    let mut availability = Availability::default();
    for pod in pods.iter().filter(|pod| belongs_to(pod, expected)) {
        let metadata = &pod.metadata;
        if metadata.deletion_timestamp.is_some() {
            availability.has_terminating = true;
            continue;
        }
        availability.active = availability.active.saturating_add(1);
        if !is_ready(pod) {
            availability.unready.push(UnreadyPod {
                name: metadata.name.as_deref().unwrap_or_default().into(),
                uid: metadata.uid.as_deref().unwrap_or_default().into(),
                created: metadata.creation_timestamp.clone(),
            });
        }
    }
    availability
}

fn belongs_to(pod: &Pod, expected: &PodMatch) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| Controller {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
    });
    let label = |key: &str| labels?.get(key).map(String::as_str);
    expected.matches(label, owner.as_ref())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
