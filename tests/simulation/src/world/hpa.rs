//! HPAs that do not belong to KEDA: they keep the number of pods within their limits, unless it is zero.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{status_writer, writer};
use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources;
use crate::api_server::store::{Store, owners};

const MANAGER: &str = "kube-controller-manager";

/// Reconciles every HPA once.
pub fn step(store: &mut Store) {
    let of_keda = |hpa: &Value| owners(hpa).any(|it| it["kind"] == "ScaledObject");
    let all = store.all(&resources::HPAS).filter(|(_, hpa)| !of_keda(hpa));
    let all: Vec<(Id, Arc<Object>)> = all.map(|(id, it)| (id.clone(), Arc::clone(it))).collect();
    for (id, hpa) in all {
        reconcile(store, &id, &hpa);
    }
}

fn reconcile(store: &mut Store, id: &Id, hpa: &Value) {
    let spec = &hpa["spec"];
    let target = &spec["scaleTargetRef"];
    let resource = match target["kind"].as_str() {
        Some("StatefulSet") => &resources::STATEFUL_SETS,
        _ => &resources::DEPLOYMENTS,
    };
    let name = target["name"].as_str().unwrap_or_default();
    let target = Id::new(resource, &id.namespace, name);
    let Some(live) = store.get(&target) else {
        return;
    };
    let limit = |field: &str| spec[field].as_u64().unwrap_or(1);
    let has = live["spec"]["replicas"].as_u64().unwrap_or(1);
    let wanted = if has == 0 {
        0
    } else {
        has.clamp(
            limit("minReplicas"),
            limit("maxReplicas").max(limit("minReplicas")),
        )
    };
    let active = if wanted == 0 { "False" } else { "True" };
    let status = json!({
        "desiredReplicas": wanted, "conditions": [{"type": "ScalingActive", "status": active}],
    });
    if hpa["status"] != status {
        let mut hpa = hpa.clone();
        hpa["status"] = status;
        let _ = store.update(id, hpa, &status_writer(MANAGER));
    }
    if has != wanted {
        let mut scaled = live.to_value();
        scaled["spec"]["replicas"] = wanted.into();
        let _ = store.update(&target, scaled, &writer(MANAGER));
    }
}
