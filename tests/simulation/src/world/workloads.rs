//! The controllers of `Deployment`s and `StatefulSet`s. They create and delete pods directly, without `ReplicaSet`s.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::Review;
use super::{World, status_writer, writer};
use crate::api_server::deletion::Deletion;
use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources::{self, Resource};
use crate::api_server::store::{Store, owners};
use crate::clock;

const MANAGER: &str = "kube-controller-manager";

/// The resources of the workloads.
pub static RESOURCES: [&Resource; 2] = [&resources::DEPLOYMENTS, &resources::STATEFUL_SETS];

/// Reconciles every workload once. Returns whether a pod was denied.
pub fn step(world: &World, store: &mut Store) -> bool {
    let mut denied = false;
    for resource in RESOURCES {
        let all: Vec<(Id, Arc<Object>)> = store
            .all(resource)
            .map(|(id, it)| (id.clone(), Arc::clone(it)))
            .collect();
        for (id, workload) in all {
            denied |= Workload::new(store, &id, workload).step(world, store);
        }
    }
    denied
}

struct Workload {
    id: Id,
    object: Arc<Object>,
    /// Identifies the pod template.
    revision: String,
    /// Its pods, except terminating ones.
    pods: Vec<(Id, Arc<Object>)>,
}

impl Workload {
    fn new(store: &Store, id: &Id, object: Arc<Object>) -> Self {
        let mut hasher = DefaultHasher::new();
        object["spec"]["template"].hash(&mut hasher);
        let uid = &object["metadata"]["uid"];
        let is_own = |pod: &Value| {
            owners(pod).any(|owner| owner["uid"] == *uid)
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        let pods = store.all(&resources::PODS).filter(|(_, pod)| is_own(pod));
        Self {
            id: id.clone(),
            revision: format!("{:08x}", hasher.finish() >> 32),
            pods: pods
                .map(|(id, pod)| (id.clone(), Arc::clone(pod)))
                .collect(),
            object,
        }
    }

    /// Returns whether a pod was denied.
    fn step(&self, world: &World, store: &mut Store) -> bool {
        let wanted = self.object["spec"]["replicas"].as_u64().unwrap_or(1);
        let wanted = usize::try_from(wanted).unwrap_or_default();
        let (current, old): (Vec<_>, Vec<_>) = self
            .pods
            .iter()
            .partition(|(_, pod)| pod["metadata"]["labels"]["revision"] == *self.revision);
        let is_stateful = self.is_stateful();
        let ready = current.iter().filter(|(_, pod)| is_ready(pod)).count();
        let is_deleting = self.object["metadata"]["deletionTimestamp"].is_string();
        let waits = self.strategy() == "Recreate" && self.has_old(store);
        let mut denied = false;
        for ordinal in (0..wanted).filter(|_| !is_deleting && !waits) {
            let name = self.pod_name(ordinal, is_stateful);
            denied |= self.create_pod(world, store, &name).is_err();
        }
        let names: Vec<String> = (0..wanted)
            .map(|ordinal| self.pod_name(ordinal, is_stateful))
            .collect();
        let excess: Vec<_> = if is_stateful {
            let pods = self.pods.iter();
            pods.filter(|(id, _)| !names.contains(&id.name)).collect()
        } else {
            current.iter().skip(wanted).copied().collect()
        };
        for (id, _) in excess {
            let _ = store.delete(id, &Deletion::default());
        }
        for (id, _) in self.to_replace(&old, (ready, wanted)) {
            let _ = store.delete(id, &Deletion::default());
        }
        self.report(store, current.len(), ready, old.len());
        denied
    }

    fn is_stateful(&self) -> bool {
        self.id.resource == &resources::STATEFUL_SETS
    }

    fn strategy(&self) -> &str {
        let spec = &self.object["spec"];
        let strategy = spec["strategy"]["type"].as_str();
        let strategy = strategy.or_else(|| spec["updateStrategy"]["type"].as_str());
        strategy.unwrap_or("RollingUpdate")
    }

    /// Whether pods of another revision exist, including terminating ones.
    fn has_old(&self, store: &Store) -> bool {
        let uid = &self.object["metadata"]["uid"];
        let mut pods = store.all(&resources::PODS).map(|(_, pod)| pod);
        pods.any(|pod| {
            owners(pod).any(|owner| owner["uid"] == *uid)
                && pod["metadata"]["labels"]["revision"] != *self.revision
        })
    }

    /// The old pods to delete now. Those of a Deployment are deleted once the new ones are ready; those of a
    /// StatefulSet one by one, starting with the last, because their names are reused.
    fn to_replace<'a>(
        &self,
        old: &[&'a (Id, Arc<Object>)],
        (ready, wanted): (usize, usize),
    ) -> Vec<&'a (Id, Arc<Object>)> {
        let is_stateful = self.is_stateful();
        match self.strategy() {
            "OnDelete" => Vec::new(),
            "Recreate" => old.to_vec(),
            _ if is_stateful => {
                let is_whole = ready + old.len() >= wanted;
                // With ordered pod management, no pod is replaced, not even an unready one, while an old pod is
                // unready.
                let is_ordered = self.object["spec"]["podManagementPolicy"] != "Parallel";
                let may_go = is_whole && (!is_ordered || old.iter().all(|(_, pod)| is_ready(pod)));
                let last = old.iter().max_by_key(|(id, _)| id.name.clone());
                last.filter(|_| may_go).copied().into_iter().collect()
            }
            _ if ready >= wanted => old.to_vec(),
            _ => Vec::new(),
        }
    }

    fn pod_name(&self, ordinal: usize, is_stateful: bool) -> String {
        if is_stateful {
            format!("{}-{ordinal}", self.id.name)
        } else {
            format!("{}-{}-{ordinal}", self.id.name, self.revision)
        }
    }

    fn create_pod(&self, world: &World, store: &mut Store, name: &str) -> Result<(), ()> {
        let id = Id::new(&resources::PODS, &self.id.namespace, name);
        if store.get(&id).is_some() {
            return Ok(());
        }
        let mut pod = self.object["spec"]["template"].clone();
        let (kind, owner, hash) = match self.id.resource.kind {
            "StatefulSet" => (
                "StatefulSet",
                self.id.name.clone(),
                "controller-revision-hash",
            ),
            _ => (
                "ReplicaSet",
                format!("{}-{}", self.id.name, self.revision),
                "pod-template-hash",
            ),
        };
        let metadata = &mut pod["metadata"];
        for label in ["revision", hash] {
            metadata["labels"][label] = self.revision.clone().into();
        }
        metadata["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": self.object["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }]);
        metadata["name"] = name.into();
        metadata["namespace"] = id.namespace.clone().into();
        let review = Review {
            id: &id,
            operation: "CREATE",
            old: None,
            dry_run: false,
        };
        if let Err(denied) = world.admit(store, &review, &mut pod) {
            world.trace.add("workloads", &denied.message);
            let creator = ("apps/v1", kind, id.namespace.as_str(), owner.as_str());
            report_denied(store, creator, "FailedCreate", &denied.message);
            return Err(());
        }
        let _ = store.create(&id, pod, &writer(MANAGER));
        Ok(())
    }

    fn report(&self, store: &mut Store, current: usize, ready: usize, old: usize) {
        let Some(live) = store.get(&self.id) else {
            return;
        };
        let total = current + old;
        let old_ready = self.pods.iter().filter(|(_, pod)| is_ready(pod)).count() - ready;
        let is_stateful = self.is_stateful();
        let available = ready + old_ready;
        let mut status = json!({"observedGeneration": live["metadata"]["generation"]});
        for (field, count) in [
            ("replicas", total),
            ("updatedReplicas", current),
            ("readyReplicas", available),
            ("availableReplicas", available),
            ("unavailableReplicas", total.saturating_sub(available)),
        ] {
            // apps/v1 omits counts of 0 (`omitempty`), so a status may lose fields.
            let is_written = match field {
                "replicas" => is_stateful || count > 0,
                "unavailableReplicas" => !is_stateful && count > 0,
                _ => count > 0,
            };
            if is_written {
                status[field] = count.into();
            }
        }
        if is_stateful {
            let is_settled = old == 0 && ready == current;
            let before = &live["status"]["currentRevision"];
            let revision = Value::from(self.revision.clone());
            let current = if is_settled || before.is_null() {
                &revision
            } else {
                before
            };
            status["currentRevision"] = current.clone();
            status["updateRevision"] = revision;
        }
        if live["status"] == status {
            return;
        }
        let mut object = live.to_value();
        object["status"] = status;
        let _ = store.update(&self.id, object, &status_writer(MANAGER));
    }
}

/// How often at most an Event about denied pods is updated, in seconds.
const REPORT_INTERVAL: i64 = 10;

/// The creator of a pod reports that it was denied: one Event, updated while attempts are denied.
pub fn report_denied(
    store: &mut Store,
    (api_version, kind, namespace, name): (&str, &str, &str, &str),
    reason: &str,
    message: &str,
) {
    let name_of_event = format!("{name}.denied");
    let id = Id::new(&resources::CORE_EVENTS, namespace, &name_of_event);
    let creator =
        json!({"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name});
    let event = json!({
        "metadata": {}, "type": "Warning", "reason": reason, "message": message,
        "involvedObject": creator, "lastTimestamp": clock::now_text(),
    });
    let Some(live) = store.get(&id) else {
        let _ = store.create(&id, event, &writer(MANAGER));
        return;
    };
    let last = live["lastTimestamp"].as_str();
    let last: Option<Timestamp> = last.and_then(|time| time.parse().ok());
    let since = last.map(|last| clock::now().duration_since(last).as_secs());
    if since.is_some_and(|since| since < REPORT_INTERVAL) {
        return;
    }
    let mut object = live.to_value();
    object["message"] = message.into();
    object["lastTimestamp"] = event["lastTimestamp"].clone();
    let _ = store.update(&id, object, &writer(MANAGER));
}

/// Whether a pod is ready.
#[must_use]
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|it| it["type"] == "Ready" && it["status"] == "True")
}
