//! Condition types of an `AsyncActor`.

use crate::fault::Reason;

pub const TRANSPORT_READY: &str = "TransportReady";

pub const WORKLOAD_READY: &str = "WorkloadReady";

pub const SCALING_READY: &str = "ScalingReady";

pub const READY: &str = "Ready";

pub const CONFLICT: &str = "Conflict";

pub const TARGET_RESOLVED: &str = "TargetResolved";

pub const INJECTED: &str = "Injected";

/// Status, reason and message of condition `Injected`.
pub type Injected = (Option<bool>, Reason, String);
