//! Record of any `ScaledObject`, including foreign ones.

use std::borrow::Cow;

use asya_shared::names::{annotation, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::autoscaler_target::{AutoscalerTarget, RawScaling};
use super::keda::ScaledObject;
use super::{AppliedRecord, Enqueue, Key, LastApplied, Metadata, RawMetadata, Record};

/// Annotation that pauses KEDA with any value.
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
/// Annotation that keeps KEDA from adding pods, since KEDA 2.18.
const PAUSED_SCALE_OUT: &str = "autoscaling.keda.sh/paused-scale-out";
/// Values that KEDA parses as false.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// A `ScaledObject`, without the fields that KEDA rewrites each time it polls the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledObjectRecord {
    pub metadata: Metadata,
    pub deleted: Option<Time>,
    /// Traces of our last apply.
    pub last_applied: LastApplied,
    pub target: AutoscalerTarget,
    /// KEDA's condition `Ready`.
    pub ready: KedaReady,
    /// Name of the HPA that KEDA created for the `ScaledObject`.
    pub hpa_name: Option<Box<str>>,
    /// Whether an annotation pauses KEDA for this workload.
    pub pause: ScalingPause,
}

/// Which scaling by KEDA an annotation pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScalingPause {
    #[default]
    None,
    /// Adds no pods.
    ScaleOut,
    /// Changes nothing.
    All,
}

/// Value of KEDA's condition `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KedaReady {
    /// KEDA has not reported the condition yet.
    #[default]
    Unknown,
    /// KEDA scales the target.
    True,
    /// KEDA does not scale the target, for this reason.
    False(Box<str>),
}

/// Decoded fields of a `ScaledObject`.
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
    fn condition(&self, kind: &str) -> Option<&RawCondition<'_>> {
        let mut conditions = self.conditions.iter().flatten();
        conditions.find(|condition| condition.kind.as_deref() == Some(kind))
    }

    /// A KEDA version that does not know an annotation reports no pause.
    fn reports_pause(&self) -> bool {
        let paused = self.condition("Paused");
        paused.is_some_and(|it| it.status.as_deref() == Some("True"))
    }

    fn ready(&self) -> KedaReady {
        let ready = self.condition("Ready");
        match ready.map(|condition| (condition.status.as_deref(), &condition.message)) {
            Some((Some("True"), _)) => KedaReady::True,
            Some((Some("False"), message)) => {
                KedaReady::False(message.as_deref().unwrap_or_default().into())
            }
            _ => KedaReady::Unknown,
        }
    }
}

fn pause(metadata: &RawMetadata<'_>, status: &RawStatus<'_>) -> ScalingPause {
    let is_on = |name: &str| {
        let value = metadata.annotation(name);
        value.is_some_and(|text| !FALSE.contains(&&*text))
    };
    if is_on(annotation::KEDA_PAUSED) || metadata.annotation(PAUSED_REPLICAS).is_some() {
        ScalingPause::All
    } else if is_on(PAUSED_SCALE_OUT) && status.reports_pause() {
        ScalingPause::ScaleOut
    } else {
        ScalingPause::None
    }
}

impl Record for ScaledObjectRecord {
    type Kind = ScaledObject;
    type Raw<'de> = RawScaledObject<'de>;

    fn project(raw: RawScaledObject<'_>) -> Self {
        let status = raw.status.unwrap_or_default();
        Self {
            metadata: raw.metadata.to_metadata(),
            last_applied: raw.metadata.last_applied(Self::MANAGER),
            target: raw.spec.unwrap_or_default().target(),
            ready: status.ready(),
            pause: pause(&raw.metadata, &status),
            hpa_name: status
                .hpa_name
                .filter(|name| !name.is_empty())
                .map(|name| name.as_ref().into()),
            deleted: raw.metadata.deletion_timestamp,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// A competing `ScaledObject` affects the actor with the workload that it scales.
    fn to_enqueue(&self) -> Enqueue {
        let owner = self.metadata.controller.as_ref();
        let actor = owner.filter(|owner| &*owner.kind == "AsyncActor");
        let actor = actor.map_or(&self.target.name, |owner| &owner.name);
        Enqueue::Actor(Key::new(&self.metadata.key.namespace, actor))
    }
}

impl AppliedRecord for ScaledObjectRecord {
    const MANAGER: &'static str = manager::SCALED_OBJECT;

    fn last_applied(&self) -> &LastApplied {
        &self.last_applied
    }
}

#[cfg(test)]
mod tests;
