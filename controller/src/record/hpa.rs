//! The record of a `HorizontalPodAutoscaler`, KEDA's or anyone's.

use asya_shared::names::label;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::condition::RawCondition;
use super::scale_target::{RawScaling, ScaleTarget};
use super::{Enqueue, Key, Metadata, RawMetadata, Record};

/// What an HPA says of a workload without pods.
const AT_ZERO: &str = "ScalingDisabled";

/// An HPA, reduced to what it scales and whether it can. Its owner is in the metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct HpaRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// The actor that it is made for: KEDA copies our labels.
    pub actor: Option<Box<str>>,
    /// What it scales.
    pub target: ScaleTarget,
    /// Pods that it asks for; 0 before it has looked, and while there are none.
    pub desired: i32,
    /// Why it does not scale. That there are no pods is as it should be: nobody scales from 0 but KEDA.
    pub inactive: Option<Inactive>,
}

/// Condition `ScalingActive` of an HPA that does not scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// Machine-readable cause.
    pub reason: Box<str>,
    /// The HPA controller's text.
    pub message: Box<str>,
    /// Since when.
    pub since: Option<Time>,
}

/// The decoded fields of an HPA.
#[derive(Deserialize)]
pub struct RawHpa<'a> {
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
    desired_replicas: Option<i32>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

impl Record for HpaRecord {
    type Kind = HorizontalPodAutoscaler;
    type Raw<'de> = RawHpa<'de>;

    fn project(raw: RawHpa<'_>) -> Self {
        let status = raw.status.unwrap_or_default();
        let conditions = status.conditions.into_iter().flatten();
        let inactive = conditions
            .filter(|condition| condition.is("ScalingActive", "False"))
            .filter(|condition| condition.reason != AT_ZERO)
            .map(|condition| Inactive {
                reason: condition.reason.as_ref().into(),
                message: condition.message.as_ref().into(),
                since: condition.last_transition_time,
            })
            .next();
        Self {
            metadata: raw.metadata.keep(),
            actor: raw.metadata.label(label::ACTOR).map(Into::into),
            target: raw.spec.unwrap_or_default().target(),
            desired: status.desired_replicas.unwrap_or_default(),
            inactive,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// A rival concerns the actor whose workload it scales; KEDA's own says whose it is.
    fn concerns(&self) -> Enqueue {
        let owner = self.metadata.controller.as_ref();
        let of_keda = owner.is_some_and(|owner| &*owner.kind == "ScaledObject");
        let actor = self.actor.as_ref().filter(|_| of_keda);
        let actor = actor.unwrap_or(&self.target.name);
        Enqueue::Actor(Key::new(&self.metadata.key.namespace, actor))
    }
}

#[cfg(test)]
mod tests;
