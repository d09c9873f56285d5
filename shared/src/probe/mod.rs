//! Pods for dry runs: as a workload's controller would create them, to see whether the API server admits them.

mod metadata;
mod pod;
mod quota;

pub use metadata::{PROBE_NAME_PREFIX, ProbeMetadata, minimal_spec, unbound_owner};
pub use pod::{from_running_pod, from_template, minimal_pod, pod_without_sidecar, unblock_owners};
pub use quota::{QuotaConclusion, Rejection, Replaced, Variant, is_quota_rejection};

use crate::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER};

/// The containers that injection adds.
pub const INJECTED_CONTAINERS: [&str; 2] = [RUNTIME_CONTAINER, SIDECAR_CONTAINER];
