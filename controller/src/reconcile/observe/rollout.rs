//! Observes what a rollout of a target's pods has to consider. Reads from the API server only if there are pods to
//! replace or a dry run is due.

use asya_shared::api::BindingRollout;
use asya_shared::hash;
use asya_shared::names::{annotation, manager};
use asya_shared::resolve::{Family, ObjectRef, Roll, Selector, Target, is_claimed, template};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::availability::{self, ray_workers};
use crate::binding::probe_pod::{bare_pod, from_pod, least_of};
use crate::binding::spec::without_ours;
use crate::binding::specimen::Specimen;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::bound_pods::{BoundPods, Counted};
use crate::reconcile::model::rollout::{Live, RolloutSeen, TEMPLATE};
use crate::record::{ActorRecord, Key};

/// Inputs that decide what to read.
#[derive(Clone, Copy)]
pub struct RolloutQuery<'a> {
    /// When the spec lets pods be replaced.
    pub rollout: BindingRollout,
    /// Whether a dry run passed with the current actor part.
    pub proved: bool,
    /// Whether a dry run is due in any case.
    pub due: bool,
    pub resolved: &'a Resolved,
    /// The target's pods.
    pub pods: &'a BoundPods,
}

/// Reads the rollout state if there is anything to replace or to prove.
pub(super) async fn see(
    context: &Context,
    actor: &ActorRecord,
    asked: RolloutQuery<'_>,
    counted: Counted,
) -> Result<RolloutSeen, Error> {
    let key = &actor.metadata.key;
    let seen = RolloutSeen {
        has_slot: context.rollout_slots.has_room_for(key, Timestamp::now()),
        counted,
        ..RolloutSeen::default()
    };
    let counted = &seen.counted;
    let at_once = actor.annotations.roll_now;
    let lacks = !counted.lacking.is_empty() || (at_once && !counted.older.is_empty());
    let rolls = lacks && (at_once || asked.rollout == BindingRollout::Always);
    let proves = counted.pods.matched == 0 && !asked.proved;
    if !rolls && !proves && !asked.due {
        return Ok(seen);
    }
    look(context, actor, asked, seen).await
}

async fn look(
    context: &Context,
    actor: &ActorRecord,
    RolloutQuery { resolved, pods, .. }: RolloutQuery<'_>,
    mut seen: RolloutSeen,
) -> Result<RolloutSeen, Error> {
    let (key, target) = (&actor.metadata.key, &resolved.target);
    let (live, bodies) = lives(context, key, target).await?;
    seen.live = live;
    let specs: Vec<_> = bodies.iter().map(without_ours).collect();
    seen.target = hash::of_value(&json!(specs));
    let (availability, staying) = availability::see(context, key, target, &seen.live).await?;
    seen.availability = availability;
    seen.counted.keep(&staying);
    let family = actor
        .binds_to
        .as_ref()
        .map_or(Family::Generic, Family::of_target);
    let specimen = Specimen::of(&target.pods, family);
    let of_template = specimen
        .as_ref()
        .and_then(|specimen| bodies.iter().find_map(|body| bare_pod(body, specimen)));
    seen.probe = match of_template {
        Some(pod) => Some(pod),
        None => match live_pod(context, key, pods).await? {
            Some(pod) => Some(from_pod(&pod)),
            // For example a target scaled to zero, whose workloads are deleted with its pods.
            None => specimen.as_ref().and_then(least_of),
        },
    };
    if let Some(pod) = &seen.probe {
        seen.budget = budget(context, key, pod).await?;
    }
    Ok(seen)
}

/// Reads the objects that carry our roll annotation and the workloads that this rolls, with their bodies.
pub(super) async fn lives(
    context: &Context,
    key: &Key,
    target: &Target,
) -> Result<(Vec<Live>, Vec<Value>), Error> {
    let (mut live, mut bodies) = (Vec::new(), Vec::new());
    for (object, path) in objects(&target.roll, &target.workload) {
        let body = context
            .bindings
            .body(&context.client, &key.namespace, &object);
        if let Some(body) = body.await.map_err(Error::Api)? {
            live.push(Live::of(&object, &body, path.as_deref()));
            bodies.push(body);
        }
    }
    Ok((live, bodies))
}

/// The objects that carry our roll annotation, with the path of the annotations, and the workloads that this rolls.
fn objects(roll: &Roll, workload: &ObjectRef) -> Vec<(ObjectRef, Option<Vec<&'static str>>)> {
    match roll {
        Roll::AnnotateTemplate(workloads) => {
            let all = workloads.iter().cloned();
            all.map(|it| (it, Some(TEMPLATE.to_vec()))).collect()
        }
        Roll::Annotate(object, path) => {
            let beside = (object != workload).then(|| (workload.clone(), None));
            [(object.clone(), Some(path.clone()))]
                .into_iter()
                .chain(beside)
                .collect()
        }
        Roll::Evict => vec![(workload.clone(), None)],
    }
}

async fn live_pod(context: &Context, key: &Key, pods: &BoundPods) -> Result<Option<Value>, Error> {
    let bare = pods.bare.iter().map(|pod| &pod.metadata);
    let marked = pods.marked.iter().map(|pod| &pod.metadata);
    let Some(metadata) = bare.chain(marked).find(|it| !it.deleting) else {
        return Ok(None);
    };
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let pod = api.get_opt(&metadata.key.name).await.map_err(Error::Api)?;
    Ok(pod.and_then(|pod| serde_json::to_value(pod).ok()))
}

async fn budget(context: &Context, key: &Key, pod: &Value) -> Result<Option<String>, Error> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(context.client.clone(), &key.namespace);
    let budgets = match api.list(&ListParams::default()).await {
        Ok(budgets) => budgets,
        // The API server itself enforces budgets on evictions.
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(None),
        Err(error) => return Err(Error::Api(error)),
    };
    let label = |key: &str| pod["metadata"]["labels"][key].as_str();
    let blocks = budgets.into_iter().find(|budget| {
        let selector = budget.spec.as_ref().and_then(|it| it.selector.as_ref());
        let selector = selector.and_then(|it| serde_json::to_value(it).ok());
        let selector = selector.and_then(|it| Selector::from_json(&it).ok());
        let allowed = budget.status.as_ref().map(|it| it.disruptions_allowed);
        selector.is_some_and(|it| it.matches(&label)) && allowed == Some(0)
    });
    Ok(blocks.and_then(|it| it.metadata.name))
}

impl Live {
    /// Reads an object; `annotated` is the path of the annotations that contain ours.
    pub fn of(object: &ObjectRef, body: &Value, annotated: Option<&[&str]>) -> Self {
        let number = |path: &str| body.pointer(path).and_then(Value::as_i64);
        let text = |path: &str| body.pointer(path).and_then(Value::as_str);
        let value = annotated.and_then(|path| {
            let mut at = body;
            for key in path {
                at = at.get(key)?;
            }
            at.get(annotation::ROLL)?.as_str().map(str::to_owned)
        });
        let wished = number("/spec/replicas").unwrap_or(1);
        let wanted = || Some(wished.try_into().unwrap_or(i32::MAX));
        let updated = number("/status/updatedReplicas").unwrap_or(0);
        let total = number("/status/replicas").unwrap_or(0);
        let unseen = number("/status/observedGeneration") < number("/metadata/generation");
        let mut live = Self {
            object: object.clone(),
            value,
            gpus: template(body).is_some_and(has_gpus),
            claimed: is_claimed(body),
            marked: is_written_by(body, manager::BINDING),
            ready: number("/status/readyReplicas")
                .and_then(|it| it.try_into().ok())
                .unwrap_or(0),
            ..Self::default()
        };
        let kind = object.group_kind();
        match (kind.group, kind.kind) {
            ("apps", "Deployment") => {
                live.rolling = unseen || updated < wished || total > updated;
                live.wanted = wanted();
                live.paused = body.pointer("/spec/paused") == Some(&Value::Bool(true));
                // Its own rollout would delete all pods at once; evictions replace them one by one (SAFE-14).
                live.by_eviction = text("/spec/strategy/type") == Some("Recreate");
                live.lowers = live.by_eviction
                    || unavailable(
                        body.pointer("/spec/strategy/rollingUpdate/maxUnavailable"),
                        wished,
                    );
            }
            ("apps", "StatefulSet") => {
                let partition = number("/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
                live.by_eviction =
                    text("/spec/updateStrategy/type") == Some("OnDelete") || partition > 0;
                live.rolling = unseen
                    || (!live.by_eviction
                        && text("/status/currentRevision") != text("/status/updateRevision")
                        && updated < wished);
                live.lowers = true;
                live.drains_first = true;
                live.wanted = wanted();
            }
            ("ray.io", "RayCluster") => live.wanted = ray_workers(body),
            _ => {}
        }
        live
    }
}

/// Whether the field manager `manager` owns fields of an object.
fn is_written_by(body: &Value, manager: &str) -> bool {
    let entries = body.pointer("/metadata/managedFields");
    let mut entries = entries.and_then(Value::as_array).into_iter().flatten();
    entries.any(|it| it["manager"] == manager)
}

/// Whether a rolling update may delete a pod before its replacement is ready.
fn unavailable(most: Option<&Value>, replicas: i64) -> bool {
    match most {
        Some(Value::String(percent)) => {
            let percent = percent
                .strip_suffix('%')
                .and_then(|it| it.parse::<i64>().ok());
            percent.is_some_and(|percent| percent * replicas / 100 >= 1)
        }
        Some(number) => number.as_i64().is_some_and(|most| most >= 1),
        None => replicas * 25 / 100 >= 1,
    }
}

fn has_gpus(template: &Value) -> bool {
    let containers = template
        .pointer("/spec/containers")
        .and_then(Value::as_array);
    let mut asked = containers.into_iter().flatten().flat_map(|container| {
        let limits = container.pointer("/resources/limits");
        limits.and_then(Value::as_object).into_iter().flatten()
    });
    asked.any(|(name, _)| {
        ["gpu", "nvidia.com/", "gaudi", "neuron", "tpu"]
            .iter()
            .any(|it| name.contains(it))
    })
}

#[cfg(test)]
mod tests;
