//! What KEDA needs to scale an actor's workload by the depth of its queue: everything here is a pure
//! function from an actor, its queue and the transport's configuration to JSON (KEDA-1 to KEDA-6).
//!
//! KEDA writes its objects back whole, from types of its own: what those leave out, an empty text or a
//! false, would be lost from what we applied and look like a rival's work. So none is sent.

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

/// What a transport must know to name a queue to KEDA.
#[derive(Clone, Copy, Debug)]
pub struct TriggerRequest<'a> {
    /// The queue.
    pub queue: &'a str,
    /// Its URL as the broker told it, where brokers have such.
    pub queue_url: Option<&'a str>,
    /// Messages per pod.
    pub queue_length: i32,
    /// The first pod starts above this.
    pub activation_queue_length: i32,
    /// Whether messages in work count.
    pub count_in_flight: bool,
}

/// A KEDA trigger, and what it logs in with.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    /// KEDA's name of the scaler.
    pub kind: &'static str,
    /// Its metadata: literal values only, since KEDA would read variables from a template in which
    /// the sidecar is not (SO-2).
    pub metadata: BTreeMap<&'static str, String>,
    /// What it logs in with; `None` where the metadata says it all.
    pub authentication: Option<Authentication>,
}

/// What KEDA logs in with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// Parameters from Secrets of the actor's namespace.
    pub secrets: Vec<(&'static str, SecretKeyRef)>,
    /// Parameters from the transport's `ConfigMap`, which this makes.
    pub settings: BTreeMap<&'static str, String>,
    /// KEDA's identity in a cloud; empty for none.
    pub pod_identity: Map<String, Value>,
}

/// Why KEDA cannot be told of a queue yet (KEDA-4).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Untriggerable {
    /// Neither configuration nor broker says where the queue is.
    #[error(
        "the URL of queue {queue} is not known: it is once the queue is there; or set accountId and region of the transport"
    )]
    QueueUrlUnknown {
        /// The queue.
        queue: String,
    },
    /// KEDA needs a region, and no URL has it.
    #[error("the region of queue {queue} is not known: set region of the transport")]
    RegionUnknown {
        /// The queue.
        queue: String,
    },
}
