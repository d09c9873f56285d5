//! Properties of the pod that our containers depend on.

use super::resources::QosClass;
use crate::inject::sidecar::{DEFAULT_GRACE_SECONDS, OTHER_METRICS_PORT};

/// User of our containers where the pod sets none (BIND-26).
pub(super) const USER: i64 = 65_532;

/// Properties of a pod that our containers depend on.
pub(super) struct PodProperties {
    pub(super) target_url: String,
    pub(super) handler: String,
    /// `None`: the actor sets it.
    pub(super) metrics_port: Option<u16>,
    /// `None`: the platform chooses.
    pub(super) user: Option<i64>,
    pub(super) qos_class: QosClass,
    /// How long the pod may take to end, in seconds.
    pub(super) grace_seconds: i64,
}

impl PodProperties {
    /// Placeholder values for a hash that must not depend on the pod.
    pub(super) fn placeholder() -> Self {
        Self {
            target_url: String::new(),
            handler: String::new(),
            metrics_port: Some(OTHER_METRICS_PORT),
            user: Some(USER),
            qos_class: QosClass::Other,
            grace_seconds: DEFAULT_GRACE_SECONDS,
        }
    }
}
