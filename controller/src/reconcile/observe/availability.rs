//! Availability of a target's pods. Pods without an actor's label are watched by metadata only (BIND-62), so their
//! readiness is read from the API server, and only while pods are being replaced.

use std::collections::BTreeSet;

use asya_shared::resolve::{GroupKind, ObjectRef, Target};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use crate::cluster::pods::list_unfinished;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::availability::{Availability, AvailabilitySource, belongs_to};
use crate::reconcile::model::rollout::{TargetObject, desired_replicas};
use crate::record::Key;

/// The target's pods as the API server lists them.
pub(super) struct TargetPodList {
    pub(super) availability: Availability,
    /// UIDs of those that are not terminating.
    pub(super) active: BTreeSet<Box<str>>,
    /// One of those that are not terminating.
    pub(super) example: Option<Box<Pod>>,
}

/// Lists the target's pods. Its `objects` were requested at `read_at`.
pub(super) async fn observe(
    context: &Context,
    key: &Key,
    target: &Target,
    objects: &[TargetObject],
    read_at: Instant,
) -> Result<TargetPodList, Error> {
    let pods = list_unfinished(&context.client, &key.namespace, &target.pods.labels)
        .await
        .map_err(Error::Api)?;
    let specify = objects.iter().filter(|it| it.desired_replicas.is_some());
    let mut replicas: Vec<_> = specify.map(|it| it.object.clone()).collect();
    let mut desired: Vec<_> = objects
        .iter()
        .filter_map(|it| it.desired_replicas)
        .collect();
    for cluster in ray_clusters(target, objects) {
        let body = context
            .bindings
            .read_object(&context.client, &key.namespace, cluster);
        let body = body.await.map_err(Error::Api)?;
        desired.extend(body.and_then(|body| desired_replicas(cluster, &body)));
        replicas.push(cluster.clone());
    }
    let active = pods.iter().map(|pod| &pod.metadata);
    let active = active.filter(|it| it.deletion_timestamp.is_none());
    let uids = active.filter_map(|it| it.uid.as_deref());
    let availability = Availability {
        desired_replicas: Availability::total_replicas(&desired),
        source: Some(AvailabilitySource {
            pods: target.pods.clone(),
            replicas,
            read_at,
        }),
        ..Availability::of(&pods, &target.pods)
    };
    let active = uids.map(Into::into).collect();
    let is_active =
        |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && belongs_to(pod, &target.pods);
    Ok(TargetPodList {
        availability,
        active,
        example: pods.iter().find(is_active).cloned().map(Box::new),
    })
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

#[cfg(test)]
mod tests;
