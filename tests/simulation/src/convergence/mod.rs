//! What must hold once users and faults have stopped.

pub mod bindings;
pub mod owners;
pub mod problem;
pub mod quotas;
pub mod scaling;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use self::bindings::{BindingExpectations, left_in_targets};
use self::problem::Problem;
use self::scaling::{scaling_faults, workload_of};
use crate::api_server::crds::Serving;
use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources::{self, Resource};
use crate::api_server::store::Store;
use crate::broker::Broker;
use crate::world::workloads::is_ready;
use crate::world::{NAMESPACES, World};
use crate::world::{pods, rivals};

/// Everything that differs from the specs of all actors.
#[must_use]
pub fn unmet(world: &World) -> Vec<String> {
    let server = world.server.lock();
    let brokers = world.brokers.lock();
    let store = &server.store;
    let mut unmet = Vec::new();
    for (id, actor) in store.all(&resources::ACTORS) {
        if actor["metadata"]["deletionTimestamp"].is_string() {
            // It rightly waits for messages that nobody consumes. KEDA starts pods that consume them, unless another
            // autoscaler prevents it.
            let policy = &actor["spec"]["queue"]["deletionPolicy"];
            let waits =
                (policy == "DeleteIfEmpty" || policy == "Drain") && messages(&brokers, id) > 0;
            let is_scaled = actor["spec"]["scaling"]["enabled"] == true
                && actor["spec"]["workload"].is_object()
                && store.serving(&resources::SCALED_OBJECTS) == Serving::Served
                && scaling_faults(store, actor).is_empty();
            if !waits || is_scaled {
                unmet.push(format!("{id} is still being deleted: {}", actor["status"]));
            }
            continue;
        }
        let expectations = Expectations {
            world,
            store,
            id,
            actor,
            brokers: &brokers,
        };
        let of_actor = if actor["spec"]["workloadRef"].is_object() {
            let may_halt = world.webhooks.has_failed();
            let binding = BindingExpectations {
                store,
                id,
                actor,
                may_halt,
            };
            let queues = expectations.queues().into_iter();
            queues.chain(binding.unmet()).collect()
        } else {
            expectations.unmet()
        };
        unmet.extend(of_actor.into_iter().map(|it| format!("{id}: {it}")));
    }
    unmet
}

/// The actors whose deletion is waiting, with the number of messages in their queues.
#[must_use]
pub fn waiting_deletions(world: &World) -> Vec<(Id, u64)> {
    let server = world.server.lock();
    let brokers = world.brokers.lock();
    let actors = server.store.all(&resources::ACTORS);
    let deleting = actors.filter(|(_, it)| it["metadata"]["deletionTimestamp"].is_string());
    deleting
        .map(|(id, _)| (id.clone(), messages(&brokers, id)))
        .collect()
}

/// Everything that is left after all actors are deleted.
#[must_use]
pub fn left_behind(world: &World) -> Vec<Problem> {
    let server = world.server.lock();
    let of_operator = |object: &Value| {
        let metadata = &object["metadata"];
        let labels = &metadata["labels"];
        let is_orphan = metadata["annotations"]["asya.sh/orphaned"] == "true";
        let is_owned = metadata["ownerReferences"].is_array();
        (labels["app.kubernetes.io/managed-by"] == "asya-operator" && is_owned) && !is_orphan
    };
    let namespaced = server
        .store
        .everything()
        .filter(|(id, _)| NAMESPACES.contains(&&*id.namespace));
    let left =
        namespaced.filter(|(id, object)| id.resource == &resources::ACTORS || of_operator(object));
    let mut left: Vec<Problem> = left
        .map(|(id, object)| Problem::of(format!("{id} is left"), object))
        .collect();
    left.extend(left_in_targets(world, &server.store));
    for (host, broker) in world.brokers.lock().iter() {
        // A queue whose declaration got no response may be untagged. It is kept, and an Event reports it (QUE-34).
        let names = broker.names().into_iter();
        let names = names.filter(|name| {
            let actors = broker.actors_queue(name);
            actors.is_some_and(|queue| !world.keeps(host, &queue))
        });
        left.extend(names.map(|name| format!("queue {name} is left at {host}").into()));
    }
    left
}

fn queue(id: &Id) -> String {
    format!("asya-{}", id.name)
}

fn messages(brokers: &BTreeMap<String, Broker>, id: &Id) -> u64 {
    let queues = brokers
        .values()
        .filter_map(|broker| broker.messages(&queue(id)));
    queues.sum()
}

struct Expectations<'a> {
    world: &'a World,
    store: &'a Store,
    id: &'a Id,
    actor: &'a Value,
    brokers: &'a BTreeMap<String, Broker>,
}

impl Expectations<'_> {
    fn unmet(&self) -> Vec<String> {
        // The ScaledObject of an earlier actor with this name remains, so the number of pods is not this actor's
        // (SAFE-25).
        if !self.scales() && self.has_orphaned_scaled_object() {
            return Vec::new();
        }
        let mut unmet = Vec::new();
        unmet.extend(self.workload());
        unmet.extend(self.scaling());
        unmet.extend(self.queues());
        unmet.extend(self.status());
        unmet
    }

    fn child(&self, resource: &'static Resource) -> Option<Arc<Object>> {
        let id = Id::new(resource, &self.id.namespace, &self.id.name);
        let child = self.store.get(&id)?;
        let mut owners = crate::api_server::store::owners(&child);
        let uid = &self.actor["metadata"]["uid"];
        owners
            .any(|owner| owner["uid"] == *uid)
            .then_some(child.clone())
    }

    fn scales(&self) -> bool {
        self.actor["spec"]["scaling"]["enabled"] == true
    }

    fn waits_for_target(&self) -> bool {
        let conditions = self.actor["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == "TargetResolved" && it["status"] == "False")
    }

    fn has_orphaned_scaled_object(&self) -> bool {
        let id = Id::new(
            &resources::SCALED_OBJECTS,
            &self.id.namespace,
            &self.id.name,
        );
        let object = self.store.get(&id);
        let uid = &self.actor["metadata"]["uid"];
        object.is_some_and(|it| {
            !crate::api_server::store::owners(&it).any(|owner| owner["uid"] == *uid)
        })
    }

    fn kinds(&self) -> (&'static Resource, &'static Resource) {
        match self.actor["spec"]["workload"]["kind"].as_str() {
            Some("StatefulSet") => (&resources::STATEFUL_SETS, &resources::DEPLOYMENTS),
            _ => (&resources::DEPLOYMENTS, &resources::STATEFUL_SETS),
        }
    }

    fn workload(&self) -> Option<String> {
        let (wanted, other) = self.kinds();
        let Some(workload) = self.child(wanted) else {
            return Some(format!("no {}", wanted.kind));
        };
        if self.child(other).is_some() {
            return Some(format!("a {} is left", other.kind));
        }
        let spec = &self.actor["spec"]["workload"];
        let image = |template: &Value| {
            let containers = template["spec"]["containers"].as_array();
            let mut containers = containers.into_iter().flatten();
            containers
                .find(|it| it["name"] == "asya-runtime")
                .map(|it| it["image"].clone())
        };
        let (has, wants) = (
            image(&workload["spec"]["template"]),
            image(&spec["template"]),
        );
        if has != wants {
            return Some(format!("image {has:?} instead of {wants:?}"));
        }
        let wants = spec["replicas"].as_i64().unwrap_or(1);
        let has = workload["spec"]["replicas"].as_i64().unwrap_or(1);
        let is_scaled = self.scales() || rivals::exists(self.store, &workload_of(self.actor));
        (!is_scaled && has != wants).then(|| format!("{has} replicas instead of {wants}"))
    }

    fn scaling(&self) -> Option<String> {
        let object = self.child(&resources::SCALED_OBJECTS);
        let wants = &self.actor["spec"]["scaling"];
        let faults = scaling_faults(self.store, self.actor);
        match (self.scales(), object) {
            (true, None) if !faults.is_empty() => None,
            // KEDA's admission webhook rejects changes while another HPA exists (KEDA-9).
            (true, Some(_)) if faults.contains(&"RivalAutoscaler") => None,
            (true, None) => Some("no ScaledObject".to_owned()),
            (false, Some(_)) => Some("a ScaledObject is left".to_owned()),
            (true, Some(object)) => {
                let has = &object["spec"];
                let (has, wants) = (
                    (&has["minReplicaCount"], &has["maxReplicaCount"]),
                    (&wants["minReplicas"], &wants["maxReplicas"]),
                );
                (has != wants).then(|| format!("scales between {has:?} instead of {wants:?}"))
            }
            (false, None) => None,
        }
    }

    fn queues(&self) -> Option<String> {
        let name = queue(self.id);
        let policy = self.actor["spec"]["queue"]["deletionPolicy"].as_str();
        for (host, broker) in self.brokers {
            let found = broker.messages(&name);
            if self.actor["spec"]["transport"] != **host {
                // The pods of a missing target are not known for certain, so its retired queues wait (SAFE-29).
                if self.waits_for_target() {
                    continue;
                }
                // A binding that does not restart pods keeps the queue from which its pods still receive. So does one
                // that has yielded to another writer.
                let conflicts = self.actor["status"]["conflicts"].as_array();
                let mut conflicts = conflicts.into_iter().flatten();
                let keeps_pods = self.actor["spec"]["binding"]["rollout"] == "OnRestart"
                    || conflicts.any(|it| it["state"] == "Stopped");
                let source = Some((host.clone(), name.clone()));
                let mut pods = self.store.all(&resources::PODS).map(|(_, pod)| pod);
                if keeps_pods && pods.any(|pod| pods::queue_of(pod) == source) {
                    continue;
                }
                let dead_letters = broker.messages(&format!("{name}-dlq"));
                let retired = self.actor["status"]["retiredQueues"].as_array();
                let mut retired = retired.into_iter().flatten();
                let is_listed = retired.any(|it| it["transport"] == **host && it["name"] == name);
                if is_listed && found.is_none() && dead_letters.unwrap_or_default() == 0 {
                    return Some(format!(
                        "a retired queue that is gone from {host} is listed"
                    ));
                }
                let is_empty = found == Some(0);
                if is_empty && policy == Some("Delete") && !self.world.keeps(host, &name) {
                    return Some(format!("a retired queue is left at {host}"));
                }
                continue;
            }
            if found.is_none() {
                return Some(format!("no queue at {host}"));
            }
            if let Some(problem) = broker.problem(&name, &self.id.name) {
                return Some(format!("the queue at {host} {problem}"));
            }
        }
        None
    }

    /// Checks that the status is true.
    fn status(&self) -> Option<String> {
        let status = &self.actor["status"];
        let (observed, generation) = (
            &status["observedGeneration"],
            &self.actor["metadata"]["generation"],
        );
        if observed != generation {
            return Some(format!(
                "status of generation {observed} instead of {generation}"
            ));
        }
        let conditions = status["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.find(|it| it["type"] == "Ready");
        let ready = ready.map(|it| (it["status"].as_str(), it["reason"].as_str()));
        let faults = scaling_faults(self.store, self.actor);
        let is_true = match ready {
            Some((Some("True"), _)) => faults.is_empty(),
            Some((Some("False"), Some(reason))) => faults.contains(&reason),
            _ => false,
        };
        if !is_true {
            return Some(format!("Ready is {ready:?}, faults of scaling: {faults:?}"));
        }
        let (workload, _) = self.kinds();
        let pods = self.store.all(&resources::PODS).map(|(_, pod)| pod);
        let uid = self.child(workload).map(|it| it["metadata"]["uid"].clone());
        let own = pods.filter(|pod| {
            crate::api_server::store::owners(pod).any(|it| Some(&it["uid"]) == uid.as_ref())
        });
        let own: Vec<_> = own
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .collect();
        let ready = own.iter().filter(|pod| is_ready(pod)).count();
        let word = status["status"].as_str().unwrap_or_default();
        let is_true = match word {
            "ScalingError" => !faults.is_empty(),
            "Running" => ready == own.len(),
            "Napping" => own.is_empty(),
            _ => false,
        };
        if !is_true || status["readyReplicas"].as_u64() != u64::try_from(ready).ok() {
            return Some(format!(
                "status {word} with {ready} of {} pods ready: {status}",
                own.len()
            ));
        }
        let queue = &status["queue"];
        (queue["transport"] != self.actor["spec"]["transport"])
            .then(|| format!("status names queue {queue}"))
    }
}
