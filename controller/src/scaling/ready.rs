//! The condition `ScalingReady` (KEDA-10).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::{Fault, Reason};
use crate::record::{HpaRecord, KedaReady, ScaledObjectRecord, ScalingInactive, ScalingPause};

/// Condition `ScalingReady` of an actor with scaling enabled.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingReady {
    pub condition: ConditionValue,
    /// Whether messages start pods of a workload without pods.
    pub starts_pods: bool,
    /// When the condition changes without an event.
    pub recheck_at: Option<Timestamp>,
}

/// Computes the condition from the observed objects. An HPA may lack metrics for `timeout`: KEDA and its metrics
/// adapter may just be starting. `last_scaled` is when the desired number of pods last changed.
pub fn scaling_ready(
    fault: Option<&Fault>,
    scaled_object: Option<&ScaledObjectRecord>,
    hpa: Option<&HpaRecord>,
    timeout: Option<Duration>,
    last_scaled: Option<Timestamp>,
    now: Timestamp,
) -> ScalingReady {
    if let Some(fault) = fault {
        return ConditionValue::from(fault).into();
    }
    let Some(scaled_object) =
        scaled_object.filter(|scaled_object| !scaled_object.metadata.deleting)
    else {
        let text = "the ScaledObject waits until the workload exists, or until the previous autoscaler is gone";
        return ConditionValue::new(ConditionStatus::Unknown, Reason::Progressing, text).into();
    };
    let name = &scaled_object.metadata.key.name;
    if let KedaReady::False(text) = &scaled_object.ready {
        let text = format!("KEDA reports that ScaledObject {name} is not ready: {text}");
        return ConditionValue::new(false, Reason::ScaledObjectNotReady, text).into();
    }
    let missing = hpa.zip(timeout).and_then(|(hpa, timeout)| {
        let (inactive, since) = missing_metrics_since(hpa, last_scaled)?;
        Some((inactive, timeout, since.checked_add(timeout).ok()?))
    });
    if let Some((inactive, timeout, deadline)) = &missing
        && *deadline <= now
    {
        let text = format!(
            "the HorizontalPodAutoscaler has had no metrics for {} s: {}: {}",
            timeout.as_secs(),
            inactive.reason,
            inactive.message
        );
        return ConditionValue::new(false, Reason::MetricsUnavailable, text).into();
    }
    let pause = scaled_object.pause;
    let (reason, text) = match (&scaled_object.ready, pause) {
        (KedaReady::True, ScalingPause::None) => (
            Reason::ScaledObjectReady,
            format!("KEDA reports that ScaledObject {name} is ready"),
        ),
        (KedaReady::True, ScalingPause::ScaleOut) => (
            Reason::ScaledObjectReady,
            format!("ScaledObject {name} is paused by an annotation, so KEDA adds no pods"),
        ),
        (KedaReady::True, ScalingPause::All) => (
            Reason::ScaledObjectReady,
            format!("ScaledObject {name} is paused by an annotation, so KEDA does not scale"),
        ),
        (KedaReady::Unknown | KedaReady::False(_), _) => (
            Reason::ScaledObjectCreated,
            format!("ScaledObject {name} is applied; KEDA has not reported it ready yet"),
        ),
    };
    ScalingReady {
        condition: ConditionValue::new(true, reason, text),
        starts_pods: pause == ScalingPause::None,
        recheck_at: missing.map(|(.., deadline)| deadline),
    }
}

/// Why an HPA has no metrics, and since when. After a scale-up from 0, the HPA still has the transition time of when
/// scaling stopped, so count from the scale-up.
fn missing_metrics_since(
    hpa: &HpaRecord,
    last_scaled: Option<Timestamp>,
) -> Option<(&ScalingInactive, Timestamp)> {
    let inactive = hpa.inactive.as_ref()?;
    let since = inactive.since.as_ref()?.0;
    let since = last_scaled.map_or(since, |scaled| since.max(scaled));
    Some((inactive, since))
}

impl From<ConditionValue> for ScalingReady {
    fn from(condition: ConditionValue) -> Self {
        Self {
            starts_pods: condition.status == ConditionStatus::True,
            condition,
            recheck_at: None,
        }
    }
}

#[cfg(test)]
mod tests;
