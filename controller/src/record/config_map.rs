//! Record of a `ConfigMap` that the actors of a namespace share: the runtime script, or a transport's settings.

use std::sync::Arc;

use asya_shared::names::{RUNTIME_CONFIG_MAP, annotation, is_shared_config_map, manager};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

use super::{Enqueue, Key, LastApplied, Metadata, RawMetadata, Record};

/// A shared `ConfigMap`. Drift is detected by hash and field ownership, so its data is not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigMapRecord {
    pub metadata: Metadata,
    /// Traces of our last apply.
    pub last_applied: LastApplied,
    /// Whether it outlives the actors that needed it (FW-23).
    pub orphaned: bool,
}

impl ConfigMapRecord {
    /// Field manager of our applies to the `ConfigMap` with this name.
    pub fn manager_of(name: &str) -> &'static str {
        if name == RUNTIME_CONFIG_MAP {
            manager::RUNTIME
        } else {
            manager::SCALED_OBJECT
        }
    }
}

/// Decoded metadata of a `ConfigMap`.
#[derive(Deserialize)]
pub struct RawConfigMap<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for ConfigMapRecord {
    type Kind = ConfigMap;
    type Raw<'de> = RawConfigMap<'de>;
    const BY_NAMESPACE: bool = true;

    fn project(raw: RawConfigMap<'_>) -> Self {
        let manager = Self::manager_of(&raw.metadata.name);
        Self {
            metadata: raw.metadata.to_metadata(),
            last_applied: raw.metadata.last_applied(manager),
            orphaned: raw.metadata.annotation(annotation::ORPHANED).as_deref() == Some("true"),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        let Key { namespace, name } = &self.metadata.key;
        if is_shared_config_map(name) {
            Enqueue::Namespace(Arc::clone(namespace))
        } else {
            Enqueue::Nothing
        }
    }
}
