//! The record of a `ScaledObject`, ours or anyone's.

use std::borrow::Cow;

use asya_shared::names::{annotation, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::keda::ScaledObject;
use super::scale_target::{RawScaling, ScaleTarget};
use super::{AppliedRecord, Enqueue, Key, LastApplied, Metadata, RawMetadata, Record};

/// Stops KEDA from scaling, whatever its text.
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
/// What KEDA reads as false.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// A `ScaledObject`, without what KEDA rewrites at every look at the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledObjectRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// When its deletion began.
    pub deleted: Option<Time>,
    /// What is left of our last apply.
    pub last: LastApplied,
    /// What it scales.
    pub target: ScaleTarget,
    /// Whether KEDA scales by it.
    pub ready: KedaReady,
    /// The HPA that KEDA made for it.
    pub hpa_name: Option<Box<str>>,
    /// Somebody told KEDA to leave the workload alone.
    pub paused: bool,
}

/// KEDA's condition `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KedaReady {
    /// KEDA has not said.
    #[default]
    Unknown,
    /// It scales.
    True,
    /// It does not, and says why.
    False(Box<str>),
}

/// The decoded fields of a `ScaledObject`.
#[derive(Deserialize)]
pub struct RawScaledObject<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow)]
    spec: Option<RawScaling<'a>>,
    #[serde(borrow)]
    status: Option<RawStatus<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawStatus<'a> {
    #[serde(borrow)]
    hpa_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

#[derive(Deserialize)]
struct RawCondition<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

impl RawStatus<'_> {
    fn ready(&self) -> KedaReady {
        let ready = self
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.kind.as_deref() == Some("Ready"));
        match ready.map(|condition| (condition.status.as_deref(), &condition.message)) {
            Some((Some("True"), _)) => KedaReady::True,
            Some((Some("False"), message)) => {
                KedaReady::False(message.as_deref().unwrap_or_default().into())
            }
            _ => KedaReady::Unknown,
        }
    }
}

fn is_paused(metadata: &RawMetadata<'_>) -> bool {
    let paused = metadata.annotation(annotation::KEDA_PAUSED);
    paused.is_some_and(|text| !FALSE.contains(&&*text))
        || metadata.annotation(PAUSED_REPLICAS).is_some()
}

impl Record for ScaledObjectRecord {
    type Kind = ScaledObject;
    type Raw<'de> = RawScaledObject<'de>;

    fn project(raw: RawScaledObject<'_>) -> Self {
        let status = raw.status.unwrap_or_default();
        Self {
            metadata: raw.metadata.keep(),
            last: raw.metadata.last_applied(Self::MANAGER),
            target: raw.spec.unwrap_or_default().target(),
            ready: status.ready(),
            hpa_name: status
                .hpa_name
                .filter(|name| !name.is_empty())
                .map(|name| name.as_ref().into()),
            paused: is_paused(&raw.metadata),
            deleted: raw.metadata.deletion_timestamp,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// A rival concerns the actor whose workload it scales.
    fn concerns(&self) -> Enqueue {
        let owner = self.metadata.controller.as_ref();
        let actor = owner.filter(|owner| &*owner.kind == "AsyncActor");
        let actor = actor.map_or(&self.target.name, |owner| &owner.name);
        Enqueue::Actor(Key::new(&self.metadata.key.namespace, actor))
    }
}

impl AppliedRecord for ScaledObjectRecord {
    const MANAGER: &'static str = manager::SCALED_OBJECT;

    fn last(&self) -> &LastApplied {
        &self.last
    }
}

#[cfg(test)]
mod tests;
