//! Condition types of an `AsyncActor`.

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
