//! The controllers of `Deployment`s and `StatefulSet`s. They create and delete pods, without `ReplicaSet` objects.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{status_writer, writer};
use crate::api_server::resources;
use crate::api_server::store::{Deletion, Id, Store, owners};

const MANAGER: &str = "kube-controller-manager";

/// One step for every workload.
pub fn step(store: &mut Store) {
    for resource in [&resources::DEPLOYMENTS, &resources::STATEFUL_SETS] {
        let all: Vec<(Id, Arc<Value>)> = store
            .all(resource)
            .map(|(id, it)| (id.clone(), Arc::clone(it)))
            .collect();
        for (id, workload) in all {
            Workload::new(store, &id, workload).step(store);
        }
    }
}

struct Workload {
    id: Id,
    object: Arc<Value>,
    /// Identifies the pod template.
    revision: String,
    /// Its pods, except those that end.
    pods: Vec<(Id, Arc<Value>)>,
}

impl Workload {
    fn new(store: &Store, id: &Id, object: Arc<Value>) -> Self {
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

    fn step(&self, store: &mut Store) {
        let wanted = self.object["spec"]["replicas"].as_u64().unwrap_or(1);
        let wanted = usize::try_from(wanted).unwrap_or_default();
        let (current, old): (Vec<_>, Vec<_>) = self
            .pods
            .iter()
            .partition(|(_, pod)| pod["metadata"]["labels"]["revision"] == *self.revision);
        let is_stateful = self.id.resource == &resources::STATEFUL_SETS;
        let ready = current.iter().filter(|(_, pod)| is_ready(pod)).count();
        let is_deleting = self.object["metadata"]["deletionTimestamp"].is_string();
        for ordinal in (0..wanted).filter(|_| !is_deleting) {
            let name = if is_stateful {
                format!("{}-{ordinal}", self.id.name)
            } else {
                format!("{}-{}-{ordinal}", self.id.name, self.revision)
            };
            self.create_pod(store, &name);
        }
        for (id, _) in current.iter().skip(wanted) {
            let _ = store.delete(id, &Deletion::default());
        }
        // The old ones of a Deployment go when the new ones are ready; the names of those of a StatefulSet are needed.
        if is_stateful || ready >= wanted {
            for (id, _) in &old {
                let _ = store.delete(id, &Deletion::default());
            }
        }
        self.report(store, current.len(), ready, old.len());
    }

    fn create_pod(&self, store: &mut Store, name: &str) {
        let id = Id::new(&resources::PODS, &self.id.namespace, name);
        if store.get(&id).is_some() {
            return;
        }
        let mut pod = self.object["spec"]["template"].clone();
        let (kind, owner) = match self.id.resource.kind {
            "StatefulSet" => ("StatefulSet", self.id.name.clone()),
            _ => ("ReplicaSet", format!("{}-{}", self.id.name, self.revision)),
        };
        pod["metadata"]["labels"]["revision"] = self.revision.clone().into();
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": self.object["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let _ = store.create(&id, pod, &writer(MANAGER));
    }

    fn report(&self, store: &mut Store, current: usize, ready: usize, old: usize) {
        let Some(live) = store.get(&self.id) else {
            return;
        };
        let total = current + old;
        let old_ready = self.pods.iter().filter(|(_, pod)| is_ready(pod)).count() - ready;
        let mut object = (*live).clone();
        object["status"] = json!({
            "observedGeneration": live["metadata"]["generation"],
            "replicas": total,
            "updatedReplicas": current,
            "readyReplicas": ready + old_ready,
            "availableReplicas": ready + old_ready,
        });
        if self.id.resource == &resources::STATEFUL_SETS {
            let is_settled = old == 0 && ready == current;
            let before = &live["status"]["currentRevision"];
            let revision = Value::from(self.revision.clone());
            let current = if is_settled || before.is_null() {
                &revision
            } else {
                before
            };
            object["status"]["currentRevision"] = current.clone();
            object["status"]["updateRevision"] = revision;
        }
        let _ = store.update(&self.id, object, &status_writer(MANAGER));
    }
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
