//! Observes what a rollout of a target's pods has to consider. Reads from the API server only if there are pods to
//! replace, a dry run is due, or the autoscaler handoff changes.

use asya_process::clock;
use asya_shared::api::BindingRollout;
use asya_shared::hash;
use asya_shared::probe::{ProbeMetadata, from_running_pod, minimal_pod, pod_without_sidecar};
use asya_shared::resolve::{Integration, ObjectRef, RolloutMethod, Target};
use asya_shared::roll;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::availability;
use crate::binding::spec::comparable;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::desired::DesiredBinding;
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::rollout::{ObservedRollout, TEMPLATE_ANNOTATIONS, TargetObject};
use crate::reconcile::model::target_pods::{TargetPodCounts, TargetPods};
use crate::record::{ActorRecord, Key};

/// Inputs that decide what to read.
#[derive(Clone, Copy)]
pub struct RolloutQuery<'a> {
    pub bound: &'a DesiredBinding,
    /// Whether a dry run passed with the current actor hash.
    pub injection_verified: bool,
    /// Whether a dry run is due in any case.
    pub probe_due: bool,
    pub resolved: &'a Resolved,
    pub pods: &'a TargetPods,
}

/// Reads the rollout state if anything depends on it.
pub(super) async fn observe(
    context: &Context,
    actor: &ActorRecord,
    query: RolloutQuery<'_>,
    counted: TargetPodCounts,
) -> Result<ObservedRollout, Error> {
    let key = &actor.metadata.key;
    let rollout = ObservedRollout {
        has_slot: context.rollout_slots.can_acquire(key, clock::now()),
        refused_eviction: context.rollout_slots.refused_eviction(key, clock::now()),
        pod_counts: counted,
        ..ObservedRollout::default()
    };
    let counted = &rollout.pod_counts;
    let roll_now = actor.annotations.roll_now;
    let needs_replacement =
        !counted.outdated.is_empty() || (roll_now && !counted.all_outdated.is_empty());
    let replaces_pods =
        needs_replacement && (roll_now || query.bound.rollout == BindingRollout::Always);
    let needs_verification = counted.pods.matched == 0 && !query.injection_verified;
    let changes_handoff = query
        .resolved
        .target
        .scale
        .handoff()
        .is_some_and(|handoff| {
            handoff.is_set != query.bound.scales || context.rollout_slots.holds(key, clock::now())
        });
    if !replaces_pods && !needs_verification && !query.probe_due && !changes_handoff {
        return Ok(rollout);
    }
    read_state(context, actor, query, rollout).await
}

async fn read_state(
    context: &Context,
    actor: &ActorRecord,
    RolloutQuery { resolved, pods, .. }: RolloutQuery<'_>,
    mut rollout: ObservedRollout,
) -> Result<ObservedRollout, Error> {
    let key = &actor.metadata.key;
    let target = &resolved.target;
    let read_at = Instant::now();
    let TargetObjects { objects, bodies } = read_target_objects(context, key, target).await?;
    rollout.objects = objects;
    let specs: Vec<_> = bodies.iter().map(comparable).collect();
    rollout.workload_specs_hash = hash::of_value(&json!(specs));
    let read = availability::observe(context, key, target, &rollout.objects, read_at).await?;
    rollout.availability = read.availability;
    rollout.pod_counts.retain_existing(&read.active);
    let integration = actor
        .binds_to
        .as_ref()
        .map_or(Integration::Generic, Integration::of_target);
    let probe_metadata = ProbeMetadata::of(&target.pods, integration);
    let from_template = probe_metadata.as_ref().and_then(|probe_metadata| {
        bodies
            .iter()
            .find_map(|body| pod_without_sidecar(body, probe_metadata))
    });
    rollout.probe_pod = match from_template {
        Some(pod) => Some(pod),
        None => match running_pod(context, key, pods).await? {
            Some(pod) => Some(from_running_pod(&pod)),
            // For example a target scaled to zero, whose workloads are deleted with its pods.
            None => probe_metadata.as_ref().and_then(minimal_pod),
        },
    };
    if let Some(pod) = &rollout.probe_pod {
        rollout.blocking_pdb = blocking_pdb(context, key, pod).await?;
    }
    Ok(rollout)
}

/// Objects of a target as the API server has them.
pub(super) struct TargetObjects {
    pub(super) objects: Vec<TargetObject>,
    /// The same objects in full.
    pub(super) bodies: Vec<Value>,
}

/// Reads the objects that carry our roll annotation, and the workloads that this rolls.
pub(super) async fn read_target_objects(
    context: &Context,
    key: &Key,
    target: &Target,
) -> Result<TargetObjects, Error> {
    let mut found = Vec::new();
    let mut bodies = Vec::new();
    for (object, path) in objects(&target.roll, &target.workload) {
        let body = context
            .bindings
            .read_object(&context.client, &key.namespace, &object);
        if let Some(body) = body.await.map_err(Error::Api)? {
            found.push(TargetObject::from_body(&object, &body, path.as_deref()));
            bodies.push(body);
        }
    }
    Ok(TargetObjects {
        objects: found,
        bodies,
    })
}

/// The objects that carry our roll annotation, with the path of the annotations, and the workloads that this rolls.
fn objects(
    roll: &RolloutMethod,
    workload: &ObjectRef,
) -> Vec<(ObjectRef, Option<Vec<&'static str>>)> {
    match roll {
        RolloutMethod::AnnotateTemplate(workloads) => {
            let workloads = workloads.iter().cloned();
            workloads
                .map(|workload| (workload, Some(TEMPLATE_ANNOTATIONS.to_vec())))
                .collect()
        }
        RolloutMethod::Annotate(object, path) => {
            let rolled = (object != workload).then(|| (workload.clone(), None));
            [(object.clone(), Some(path.clone()))]
                .into_iter()
                .chain(rolled)
                .collect()
        }
        RolloutMethod::Evict => vec![(workload.clone(), None)],
    }
}

async fn running_pod(
    context: &Context,
    key: &Key,
    pods: &TargetPods,
) -> Result<Option<Value>, Error> {
    let uninjected = pods.uninjected.iter().map(|pod| (false, &pod.metadata));
    let labelled = pods.labelled.iter().map(|pod| (true, &pod.metadata));
    let live = uninjected.chain(labelled).filter(|(_, it)| !it.deleting);
    // Always choose the same pod, whatever the order of the store.
    let Some((_, metadata)) = live.min_by_key(|(labelled, it)| (*labelled, &it.key.name)) else {
        return Ok(None);
    };
    read_pod(context, key, &metadata.key.name).await
}

/// The name of a budget that allows no disruption of this pod now.
pub(super) async fn blocking_pdb_of(
    context: &Context,
    key: &Key,
    pod: &Pod,
) -> Result<Option<String>, Error> {
    blocking_pdb(context, key, &json!(pod)).await
}

async fn read_pod(context: &Context, key: &Key, name: &str) -> Result<Option<Value>, Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let pod = api.get_opt(name).await.map_err(Error::Api)?;
    Ok(pod.and_then(|pod| serde_json::to_value(pod).ok()))
}

async fn blocking_pdb(context: &Context, key: &Key, pod: &Value) -> Result<Option<String>, Error> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(context.client.clone(), &key.namespace);
    let budgets = match api.list(&ListParams::default()).await {
        Ok(budgets) => budgets,
        // The API server itself enforces budgets on evictions.
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(None),
        Err(error) => return Err(Error::Api(error)),
    };
    let budgets: Vec<Value> = budgets.iter().map(|budget| json!(budget)).collect();
    Ok(roll::exhausted_budget(&budgets, pod).map(str::to_owned))
}

#[cfg(test)]
mod tests;
