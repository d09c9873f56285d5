//! Observes the pods that may consume from the actor's queue, except those of a binding's target.

use std::sync::Arc;

use asya_shared::api::WorkloadKind;

use crate::context::Context;
use crate::record::{ActorRecord, PodRecord};

/// Pods that may consume from the actor's queue.
pub(super) struct ActorPods {
    /// Those of the actor's workload.
    pub(super) own: Vec<Arc<PodRecord>>,
    /// Those that an earlier actor of its name left, whatever the mode of either actor.
    pub(super) predecessors: Vec<Arc<PodRecord>>,
    /// Those without a controller, because their workload was deleted without them.
    pub(super) unmanaged: Vec<Arc<PodRecord>>,
}

impl ActorPods {
    /// The workloads of the `orphaned` kinds are not the actor's: an earlier one may have left them.
    pub(super) fn list(context: &Context, actor: &ActorRecord, orphaned: &[WorkloadKind]) -> Self {
        let mut workload_pods = workload_pods(context, actor);
        let mut predecessors = pods_of_earlier_bindings(context, actor);
        let (own, orphans) = if actor.binds_to.is_some() {
            // The target may have the name of the actor.
            workload_pods.retain(|pod| pod.injection.is_none());
            (Vec::new(), workload_pods)
        } else {
            split_pods(workload_pods, orphaned)
        };
        predecessors.retain(|pod| {
            own.iter()
                .chain(&orphans)
                .all(|it| it.metadata.uid != pod.metadata.uid)
        });
        predecessors.extend(orphans);
        let mut unmanaged = context.stores.pods.of_actor(&actor.metadata.key);
        unmanaged.retain(|pod| pod.unmanaged_of.is_some() && !pod.finished);
        Self {
            own,
            predecessors,
            unmanaged,
        }
    }
}

/// Pods with the sidecar of an earlier binding of this name, which its deletion left (BIND-43, BIND-44): they consume
/// from this one's queue.
fn pods_of_earlier_bindings(context: &Context, actor: &ActorRecord) -> Vec<Arc<PodRecord>> {
    let mut pods = context.stores.pods.of_actor(&actor.metadata.key);
    pods.retain(|pod| {
        let injection = pod.injection.as_ref().filter(|it| it.intact);
        !pod.finished && injection.is_some_and(|it| *it.by != *actor.metadata.uid)
    });
    pods
}

/// The pods of the actor's workload. The owner must match too, because a standalone pod may carry copied labels
/// (STA-1).
fn workload_pods(context: &Context, actor: &ActorRecord) -> Vec<Arc<PodRecord>> {
    let name = &actor.metadata.key.name;
    let mut pods = context.stores.pods.of_actor(&actor.metadata.key);
    pods.retain(|pod| {
        let Some(owner) = pod.metadata.controller.as_ref() else {
            return false;
        };
        let deployment = owner.name.rsplit_once('-').map_or("", |(prefix, _)| prefix);
        match workload_kind_of(pod) {
            Some(WorkloadKind::Deployment) => deployment == &**name,
            Some(WorkloadKind::StatefulSet) => *owner.name == **name,
            None => false,
        }
    });
    for pod in &mut pods {
        context.stores.mount_failures.add_problem_to(pod);
    }
    pods
}

/// Splits off the pods of the workloads of the `orphaned` kinds, which are not the actor's although they have its name.
pub(super) fn split_pods(
    pods: Vec<Arc<PodRecord>>,
    orphaned: &[WorkloadKind],
) -> (Vec<Arc<PodRecord>>, Vec<Arc<PodRecord>>) {
    let is_own = |pod: &Arc<PodRecord>| {
        let kind = workload_kind_of(pod);
        kind.is_none_or(|kind| !orphaned.contains(&kind))
    };
    pods.into_iter().partition(is_own)
}

/// The kind of the workload that created a pod.
fn workload_kind_of(pod: &PodRecord) -> Option<WorkloadKind> {
    match &*pod.metadata.controller.as_ref()?.kind {
        "ReplicaSet" => Some(WorkloadKind::Deployment),
        "StatefulSet" => Some(WorkloadKind::StatefulSet),
        _ => None,
    }
}
