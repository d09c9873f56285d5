//! The `ConfigMap` with the runtime script, in every namespace with actors (RUN-1 to RUN-3).

use std::sync::Arc;

use asya_shared::inject::runtime_config_map;
use asya_shared::names::RUNTIME_CONFIG_MAP;
use tracing::{info, warn};

use crate::config_maps::ConfigMaps;
use crate::reconcile::{Error, Fault, Retry};
use crate::record::Key;
use crate::script::ADAPTERS;

/// Keeps the script where actors need it.
pub struct RuntimeScript {
    script: Arc<str>,
    /// A namespace whose script stays without actors (RUN-3).
    home: Arc<str>,
}

impl RuntimeScript {
    /// Keeps `script`; `home` is the namespace in which it stays without actors.
    pub fn new(script: Arc<str>, home: &str) -> Self {
        Self {
            script,
            home: home.into(),
        }
    }

    /// Makes the script of `namespace` what it should be.
    ///
    /// # Errors
    /// When the API server fails. A refusal is the inner error.
    pub async fn ensure(
        &self,
        config_maps: &ConfigMaps,
        namespace: &str,
    ) -> Result<Result<(), Fault>, Error> {
        let key = Key::new(namespace, RUNTIME_CONFIG_MAP);
        let wanted = runtime_config_map(namespace, &self.script, ADAPTERS);
        let ensured = config_maps.ensure(&key, &wanted).await?;
        if let Ok(true) = ensured {
            info!(namespace, "Runtime ConfigMap reconciled");
        }
        Ok(ensured.map(drop))
    }

    /// Whether the script stays in `namespace` without actors.
    pub fn is_home(&self, namespace: &str) -> bool {
        *self.home == *namespace
    }

    /// Whether this is the script that stays without actors.
    pub fn is_at_home(&self, config_map: &Key) -> bool {
        &*config_map.name == RUNTIME_CONFIG_MAP && self.is_home(&config_map.namespace)
    }

    /// Keeps the script in its home namespace (RUN-3). One that is missing is told; answers when to look again.
    ///
    /// # Errors
    /// When the API server fails.
    pub async fn ensure_home(&self, config_maps: &ConfigMaps) -> Result<Option<Retry>, Error> {
        if let Err(fault) = self.ensure(config_maps, &self.home).await? {
            warn!(namespace = &*self.home, reason = %fault.reason, message = fault.message, "no runtime script at home");
            return Ok(Some(fault.retry));
        }
        Ok(None)
    }
}
