//! Condition types of an `AsyncActor`.

use crate::fault::Reason;

/// The queue exists as configured.
pub const TRANSPORT_READY: &str = "TransportReady";

/// The actor's objects are applied and its pods are ready; with `workloadRef` only present while False.
pub const WORKLOAD_READY: &str = "WorkloadReady";

/// KEDA scales the pods; absent while scaling is off and no other autoscaler interferes.
pub const SCALING_READY: &str = "ScalingReady";

/// Summary of the other conditions, except `Conflict`.
pub const READY: &str = "Ready";

/// Another client reverts what the operator writes; False or absent is good.
pub const CONFLICT: &str = "Conflict";

/// `spec.workloadRef` resolves to a workload that can be bound.
pub const TARGET_RESOLVED: &str = "TargetResolved";

/// The pods of the target have the sidecar.
pub const INJECTED: &str = "Injected";

/// The value of condition `Injected`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// `None` is Unknown.
    pub status: Option<bool>,
    pub reason: Reason,
    pub message: String,
}

impl Injected {
    pub fn new(
        status: impl Into<Option<bool>>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status: status.into(),
            reason,
            message: message.into(),
        }
    }
}
