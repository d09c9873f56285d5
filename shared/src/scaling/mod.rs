//! Everything that KEDA needs to scale an actor's workload by queue depth, as JSON: pure functions of an actor, its
//! queue and the transport's configuration (KEDA-1 to KEDA-6).
//!
//! KEDA writes its objects back as a whole, serialised from its own types. Fields that these omit, such as an empty
//! string or false, would disappear from what we applied and look like drift, so we never send them.

mod objects;
pub(crate) mod rabbitmq;
pub(crate) mod sqs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::config::SecretKeyRef;

pub use objects::{
    ScaleTarget, ScalingInputs, ScalingObjects, hpa_name, scaling_objects,
    transport_config_map_name, trigger_authentication_name,
};

/// API group of KEDA's objects.
pub const KEDA_GROUP: &str = "keda.sh";
/// Version of KEDA's objects.
pub const KEDA_VERSION: &str = "v1alpha1";

/// Inputs from which a transport describes a queue to KEDA.
#[derive(Clone, Copy, Debug)]
pub struct TriggerRequest<'a> {
    /// The queue's name.
    pub queue: &'a str,
    /// The queue's URL as returned by the broker, if the broker uses URLs.
    pub queue_url: Option<&'a str>,
    /// Target number of messages per pod.
    pub queue_length: i32,
    /// Scale up from zero above this number of messages.
    pub activation_queue_length: i32,
    /// Whether in-flight messages count.
    pub count_in_flight: bool,
}

/// A KEDA trigger and its authentication.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// Trigger type, as KEDA names it.
    pub kind: &'static str,
    /// Trigger metadata. Only literal values: KEDA would resolve variables from a pod template that does not contain
    /// the sidecar (SO-2).
    pub metadata: BTreeMap<&'static str, String>,
    /// Authentication; `None` if the metadata suffices.
    pub authentication: Option<Authentication>,
}

/// How KEDA authenticates to the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// Parameters from Secrets in the actor's namespace.
    pub secrets: Vec<(&'static str, SecretKeyRef)>,
    /// Parameters for the transport's `ConfigMap`, which we create from them.
    pub settings: BTreeMap<&'static str, String>,
    /// KEDA's `podIdentity`; empty for none.
    pub pod_identity: Map<String, Value>,
}

/// Why a queue cannot be described to KEDA yet (KEDA-4).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TriggerError {
    /// Neither the configuration nor the broker has provided the queue's URL.
    #[error(
        "the URL of queue {queue} is unknown until the queue exists; to scale before that, set accountId and region \
         of the transport"
    )]
    QueueUrlUnknown {
        /// The queue's name.
        queue: String,
    },
    /// KEDA needs a region, and neither configuration nor URL contains one.
    #[error("the region of queue {queue} is unknown: set region of the transport")]
    RegionUnknown {
        /// The queue's name.
        queue: String,
    },
}
