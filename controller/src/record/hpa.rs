//! Record of any `HorizontalPodAutoscaler`, whether or not KEDA created it.

use asya_shared::names::label;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::autoscaler_target::{AutoscalerTarget, RawScaling};
use super::condition::RawCondition;
use super::{Enqueue, Key, Metadata, RawMetadata, Record};

/// Reason that the HPA controller sets while the workload has 0 replicas.
const AT_ZERO: &str = "ScalingDisabled";

/// An HPA, reduced to its target, the desired replicas and whether it is active.
#[derive(Clone, Debug, PartialEq)]
pub struct HpaRecord {
    pub metadata: Metadata,
    /// Actor that the HPA was created for; KEDA copies our labels to it.
    pub actor: Option<Box<str>>,
    pub target: AutoscalerTarget,
    /// Desired replicas; 0 until the HPA controller has evaluated the HPA, and while there are no pods.
    pub desired: i32,
    /// Why scaling is inactive, except `ScalingDisabled`: only KEDA scales from zero, so a workload without pods is not
    /// a fault.
    pub inactive: Option<ScalingInactive>,
}

/// Condition `ScalingActive` with status `False`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalingInactive {
    pub reason: Box<str>,
    /// Message of the HPA controller.
    pub message: Box<str>,
    pub since: Option<Time>,
}

/// Decoded fields of an HPA.
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
            .map(|condition| ScalingInactive {
                reason: condition.reason.as_ref().into(),
                message: condition.message.as_ref().into(),
                since: condition.last_transition_time,
            })
            .next();
        Self {
            metadata: raw.metadata.to_metadata(),
            actor: raw.metadata.label(label::ACTOR).map(Into::into),
            target: raw.spec.unwrap_or_default().target(),
            desired: status.desired_replicas.unwrap_or_default(),
            inactive,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// KEDA's own HPA affects the actor in its label, a competing one the actor with the workload that it scales.
    fn to_enqueue(&self) -> Enqueue {
        let owner = self.metadata.controller.as_ref();
        let is_of_keda = owner.is_some_and(|owner| &*owner.kind == "ScaledObject");
        let actor = self.actor.as_ref().filter(|_| is_of_keda);
        let actor = actor.unwrap_or(&self.target.name);
        Enqueue::Actor(Key::new(&self.metadata.key.namespace, actor))
    }
}

#[cfg(test)]
mod tests;
