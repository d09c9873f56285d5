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
    /// Hash of the `ConfigMap` applied in each namespace: every reconcile needs it, and the script is long.
    hashes: Mutex<HashMap<Box<str>, String>>,
    /// Namespace that keeps the script even without actors (RUN-3).
    home: Arc<str>,
}

impl RuntimeScript {
    /// Keeps `script`; `home` is the namespace that keeps it even without actors.
    pub fn new(script: Arc<str>, home: &str) -> Self {
        Self {
            script,
            hashes: Mutex::default(),
            home: home.into(),
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
        let wanted = runtime_config_map(namespace, &self.script, ADAPTERS);
        let ensured = config_maps.ensure(&key, &wanted).await;
        if !matches!(ensured, Err(StepError::Aborted(_))) {
            self.hashes.lock().insert(namespace.into(), wanted.hash);
        }
        if ensured? {
            info!(namespace, "Runtime ConfigMap reconciled");
        }
        Ok(())
    }

    /// Whether `namespace` keeps the script even without actors.
    pub fn is_home(&self, namespace: &str) -> bool {
        *self.home == *namespace
    }

    /// Whether this is the `ConfigMap` that is kept even without actors.
    pub fn is_at_home(&self, config_map: &Key) -> bool {
        &*config_map.name == RUNTIME_CONFIG_MAP && self.is_home(&config_map.namespace)
    }

    /// Keeps the script in its home namespace (RUN-3). A refusal is logged, and its requeue returned.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn ensure_home(&self, config_maps: &ConfigMaps) -> Result<Option<Requeue>, Error> {
        if let Err(refused) = self.ensure(config_maps, &self.home).await {
            let fault = refused.fault()?;
            warn!(
                namespace = &*self.home,
                reason = %fault.reason,
                message = fault.message,
                "cannot write the runtime script's ConfigMap in its home namespace"
            );
            return Ok(Some(fault.retry));
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
    use crate::cluster::impersonation::Applier;
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

    fn server(asked: &Arc<AtomicUsize>) -> ConfigMaps {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            asked.fetch_add(1, Ordering::Relaxed);
            async {
                let body = request.into_body().collect_bytes().await?;
                // A read returns an object of ours without the script.
                let ours = json!({"metadata": {"labels": {label::PART_OF: "asya"}}});
                let object = applied(serde_json::from_slice(&body).unwrap_or(ours));
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, BoxError>(Response::new(body))
            }
        });
        ConfigMaps::new(&Applier::new(Client::new(service, "default"), None))
    }

    /// RUN-1, RUN-2
    #[tokio::test]
    async fn script_is_applied_once_per_namespace_and_again_after_drift() {
        let asked = Arc::default();
        let maps = server(&asked);
        let runtime = RuntimeScript::new("script".into(), "home");
        let ensure = async |namespace| {
            let ensured = runtime.ensure(&maps, namespace).await;
            ensured.unwrap();
            asked.load(Ordering::Relaxed)
        };
        assert_eq!([ensure("a").await, ensure("a").await], [1, 1]);
        assert_eq!([ensure("b").await, ensure("a").await], [2, 2]);

        let mut changed = applied(runtime_config_map("a", "script", ADAPTERS).object);
        changed["metadata"]["annotations"] = json!({});
        changed["metadata"]["resourceVersion"] = json!("8");
        let changed: Projected<ConfigMapRecord> =
            serde_json::from_str(&changed.to_string()).unwrap();
        maps.objects.store.show(&None, &changed);
        assert!(ensure("a").await > 2);
        assert_eq!(ensure("b").await, ensure("b").await);
    }
}
