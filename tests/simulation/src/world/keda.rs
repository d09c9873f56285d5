//! KEDA: an HPA for every `ScaledObject`, and replicas that follow the number of messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{status_writer, writer};
use crate::api_server::crds::Serving;
use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources::{self, Resource};
use crate::api_server::store::Store;
use crate::broker::Broker;

const MANAGER: &str = "keda";
static CRDS: [&Resource; 2] = [
    &resources::SCALED_OBJECTS,
    &resources::TRIGGER_AUTHENTICATIONS,
];
const FINALIZER: &str = "finalizer.keda.sh";
/// Label with the name of the `ScaledObject`.
const NAME: &str = "scaledobject.keda.sh/name";

/// Whether KEDA should be installed, and whether it runs.
pub struct Keda {
    is_wanted: bool,
    runs: bool,
}

impl Default for Keda {
    fn default() -> Self {
        Self {
            is_wanted: true,
            runs: true,
        }
    }
}

impl Keda {
    /// Someone installs or reinstalls it.
    pub fn install(&mut self) {
        *self = Self::default();
    }

    /// Someone uninstalls it. Either its CRDs are deleted while it still runs and removes its finalizers, or it stops
    /// first and the CRDs remain until it runs again.
    pub fn uninstall(&mut self, store: &mut Store, stops_first: bool) {
        self.is_wanted = false;
        self.runs = !stops_first;
        for resource in CRDS {
            store.delete_crd(resource);
        }
    }

    /// Runs one step.
    pub fn step(&self, store: &mut Store, brokers: &BTreeMap<String, Broker>) {
        if self.is_wanted {
            install(store);
        }
        store.finish_crds();
        if self.runs {
            step(store, brokers);
            store.finish_crds();
        }
    }
}

/// Installs its missing CRDs.
pub fn install(store: &mut Store) {
    for resource in CRDS {
        store.install_crd(resource);
    }
}

/// Whether its CRDs are installed.
#[must_use]
pub fn is_installed(store: &Store) -> bool {
    CRDS.iter()
        .all(|resource| store.serving(resource) == Serving::Served)
}

/// Reconciles every `ScaledObject` once.
fn step(store: &mut Store, brokers: &BTreeMap<String, Broker>) {
    let all = store.all(&resources::SCALED_OBJECTS);
    let all: Vec<(Id, Arc<Object>)> = all.map(|(id, it)| (id.clone(), Arc::clone(it))).collect();
    for (id, object) in all {
        if object["metadata"]["deletionTimestamp"].is_string() {
            finalize(store, &id, &object);
        } else {
            reconcile(store, &id, &object, brokers);
        }
    }
}

fn finalize(store: &mut Store, id: &Id, object: &Value) {
    let mut object = object.clone();
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|it| it != FINALIZER);
    }
    let _ = store.update(id, object, &writer(MANAGER));
}

fn reconcile(store: &mut Store, id: &Id, object: &Value, brokers: &BTreeMap<String, Broker>) {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"].as_array();
    let is_ours = |it: &Value| it == FINALIZER;
    let is_finalized = finalizers.is_some_and(|all| all.iter().any(is_ours));
    if !is_finalized || metadata["labels"][NAME] != id.name {
        let mut owned = object.clone();
        let others = finalizers.into_iter().flatten().cloned();
        let others = others.filter(|it| !is_ours(it));
        owned["metadata"]["finalizers"] = others.chain([FINALIZER.into()]).collect();
        owned["metadata"]["labels"][NAME] = id.name.clone().into();
        let _ = store.update(id, owned, &writer(MANAGER));
    }
    let Some(target) = target_of(store, id, object) else {
        report(store, id, false);
        return;
    };
    let hpa = format!("keda-hpa-{}", id.name);
    let replicas = wanted_replicas(object, &id.name, brokers);
    apply_hpa(
        store,
        &Id::new(&resources::HPAS, &id.namespace, &hpa),
        object,
        replicas,
    );
    report(store, id, true);
    if let Some(live) = store
        .get(&target)
        .filter(|live| live["spec"]["replicas"] != replicas)
    {
        let mut scaled = live.to_value();
        scaled["spec"]["replicas"] = replicas.into();
        let _ = store.update(&target, scaled, &writer(MANAGER));
    }
}

fn target_of(store: &Store, id: &Id, object: &Value) -> Option<Id> {
    let target = &object["spec"]["scaleTargetRef"];
    let resource: &'static Resource = match target["kind"].as_str() {
        Some("StatefulSet") => &resources::STATEFUL_SETS,
        _ => &resources::DEPLOYMENTS,
    };
    let target = Id::new(resource, &id.namespace, target["name"].as_str()?);
    store.get(&target).is_some().then_some(target)
}

/// One pod while there are messages, within the limits of the `ScaledObject`.
fn wanted_replicas(object: &Value, actor: &str, brokers: &BTreeMap<String, Broker>) -> i64 {
    let limit = |name: &str, default: i64| object["spec"][name].as_i64().unwrap_or(default);
    let queue = format!("asya-{actor}");
    let messages = brokers
        .values()
        .filter_map(|broker| broker.messages(&queue));
    let busy = i64::from(messages.sum::<u64>() > 0);
    let least = limit("minReplicaCount", 0);
    busy.max(least)
        .min(limit("maxReplicaCount", 100).max(least))
}

fn apply_hpa(store: &mut Store, id: &Id, object: &Value, replicas: i64) {
    let spec = &object["spec"];
    let hpa = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": id.name,
            "labels": object["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": object["apiVersion"], "kind": "ScaledObject", "name": object["metadata"]["name"],
                "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"].as_i64().unwrap_or_default().max(1),
            "maxReplicas": spec["maxReplicaCount"],
        },
    });
    let status = json!({
        "desiredReplicas": replicas,
        "conditions": [{"type": "ScalingActive", "status": "True"}],
    });
    if let Some(live) = store.get(id)
        && live["spec"] == hpa["spec"]
        && live["status"] == status
        && ["labels", "ownerReferences"]
            .iter()
            .all(|it| live["metadata"][it] == hpa["metadata"][it])
    {
        return;
    }
    let _ = store.apply(id, hpa, &writer(MANAGER), true);
    let Some(live) = store.get(id) else { return };
    let mut live = live.to_value();
    live["status"] = status;
    let _ = store.update(id, live, &status_writer("horizontal-pod-autoscaler"));
}

fn report(store: &mut Store, id: &Id, has_target: bool) {
    let Some(live) = store.get(id) else { return };
    let (status, reason) = if has_target {
        ("True", "ScaledObjectReady")
    } else {
        ("False", "ScaledObjectCheckFailed")
    };
    let conditions =
        json!([{"type": "Ready", "status": status, "reason": reason, "message": reason}]);
    let hpa = format!("keda-hpa-{}", id.name);
    let has_hpa = !has_target || live["status"]["hpaName"] == hpa;
    if live["status"]["conditions"] == conditions && has_hpa {
        return;
    }
    let mut live = live.to_value();
    live["status"]["conditions"] = conditions;
    if has_target {
        live["status"]["hpaName"] = hpa.into();
    }
    let _ = store.update(id, live, &status_writer(MANAGER));
}
