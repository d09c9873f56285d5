//! The `ConfigMap` with the runtime script, in every namespace with actors (RUN-1 to RUN-3).

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::inject::runtime_config_map;
use asya_shared::names::RUNTIME_CONFIG_MAP;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::source::ADAPTERS;
use crate::cluster::config_maps::ConfigMaps;
use crate::fault::{Error, Requeue, StepError};
use crate::record::Key;

/// Keeps the script in every namespace that needs it.
pub struct RuntimeScript {
    script: Arc<str>,
    /// Hash of the `ConfigMap` applied in each namespace, cached because every reconcile needs it.
    hashes: Mutex<HashMap<Box<str>, String>>,
    /// Namespace that keeps the script even without actors (RUN-3).
    runtime_namespace: Arc<str>,
}

impl RuntimeScript {
    /// `runtime_namespace` keeps `script` even without actors.
    pub fn new(script: Arc<str>, runtime_namespace: &str) -> Self {
        Self {
            script,
            hashes: Mutex::default(),
            runtime_namespace: runtime_namespace.into(),
        }
    }

    /// Applies the script in `namespace` unless it is up to date.
    ///
    /// # Errors
    /// If the API server refuses or fails.
    pub async fn ensure(&self, config_maps: &ConfigMaps, namespace: &str) -> Result<(), StepError> {
        let key = Key::new(namespace, RUNTIME_CONFIG_MAP);
        let hash = self.hashes.lock().get(namespace).cloned();
        if let Some(hash) = hash
            && config_maps.is_current(&key, &hash).await
        {
            return Ok(());
        }
        let desired = runtime_config_map(namespace, &self.script, ADAPTERS);
        let ensured = config_maps.ensure(&key, &desired).await;
        if !matches!(ensured, Err(StepError::Error(_))) {
            self.hashes.lock().insert(namespace.into(), desired.hash);
        }
        if ensured? {
            info!(namespace, "Runtime ConfigMap reconciled");
        }
        Ok(())
    }

    /// Whether `namespace` keeps the script even without actors.
    pub fn is_runtime_namespace(&self, namespace: &str) -> bool {
        *self.runtime_namespace == *namespace
    }

    /// Whether this is the `ConfigMap` that is kept even without actors.
    pub fn is_permanent(&self, config_map: &Key) -> bool {
        &*config_map.name == RUNTIME_CONFIG_MAP && self.is_runtime_namespace(&config_map.namespace)
    }

    /// Applies the script in the runtime namespace. Logs a refusal, and returns when to retry (RUN-3).
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn ensure_in_runtime_namespace(
        &self,
        config_maps: &ConfigMaps,
    ) -> Result<Option<Requeue>, Error> {
        if let Err(refused) = self.ensure(config_maps, &self.runtime_namespace).await {
            let fault = refused.fault()?;
            warn!(
                namespace = &*self.runtime_namespace,
                reason = %fault.reason,
                message = fault.message,
                "cannot write the runtime script's ConfigMap in the runtime namespace"
            );
            return Ok(Some(fault.requeue));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asya_shared::names::label;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;
    use crate::cluster::impersonation::Impersonation;
    use crate::cluster::watch_scope::WatchScope;
    use crate::record::{ConfigMapRecord, Projected};

    /// The object as the API server returns it after an apply.
    fn applied(mut object: Value) -> Value {
        object["metadata"]["uid"] = json!("1");
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["managedFields"] = json!([
            {"manager": "asya-operator/runtime", "operation": "Apply", "fieldsV1": {"f:data": {"f:asya_runtime.py": {}}}},
        ]);
        object
    }

    fn server(requests: &Arc<AtomicUsize>) -> ConfigMaps {
        let requests = Arc::clone(requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            requests.fetch_add(1, Ordering::Relaxed);
            async {
                let body = request.into_body().collect_bytes().await?;
                // A read returns our object without the script.
                let existing = json!({"metadata": {"labels": {label::PART_OF: "asya"}}});
                let object = applied(serde_json::from_slice(&body).unwrap_or(existing));
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, BoxError>(Response::new(body))
            }
        });
        ConfigMaps::new(&Impersonation::new(Client::new(service, "default"), None))
    }

    /// RUN-1, RUN-2
    #[tokio::test]
    async fn script_is_applied_once_per_namespace_and_again_after_drift() {
        let requests = Arc::default();
        let maps = server(&requests);
        let runtime = RuntimeScript::new("script".into(), "home");
        let ensure = async |namespace| {
            let ensured = runtime.ensure(&maps, namespace).await;
            ensured.unwrap();
            requests.load(Ordering::Relaxed)
        };
        assert_eq!([ensure("a").await, ensure("a").await], [1, 1]);
        assert_eq!([ensure("b").await, ensure("a").await], [2, 2]);

        let mut changed = applied(runtime_config_map("a", "script", ADAPTERS).object);
        changed["metadata"]["annotations"] = json!({});
        changed["metadata"]["resourceVersion"] = json!("8");
        let changed: Projected<ConfigMapRecord> =
            serde_json::from_str(&changed.to_string()).unwrap();
        maps.objects.store.apply(&WatchScope::Cluster, &changed);
        assert!(ensure("a").await > 2);
        assert_eq!(ensure("b").await, ensure("b").await);
    }
}
