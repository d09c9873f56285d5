//! What our containers must know of the pod that they go into.

use super::resources::Quality;

/// The sidecar's metrics; its own default is the model's port in `KServe` and Knative (BIND-24).
pub(super) const METRICS_PORT: u16 = 18_080;
/// The user of our containers where the pod names none (BIND-26).
pub(super) const USER: i64 = 65_532;

/// What our containers must know of a pod.
pub(super) struct Facts {
    pub(super) target_url: String,
    pub(super) handler: String,
    /// `None`: the actor says it.
    pub(super) metrics_port: Option<u16>,
    /// `None`: the platform chooses.
    pub(super) user: Option<i64>,
    pub(super) quality: Quality,
}

impl Facts {
    /// What stands for all pods in a hash.
    pub(super) fn of_no_pod() -> Self {
        Self {
            target_url: String::new(),
            handler: String::new(),
            metrics_port: Some(METRICS_PORT),
            user: Some(USER),
            quality: Quality::Other,
        }
    }
}
