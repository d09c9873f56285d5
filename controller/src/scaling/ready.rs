//! The condition `ScalingReady` (KEDA-10).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::fault::{Fault, Reason};
use crate::record::{HpaRecord, Inactive, KedaReady, ScaledObjectRecord};

/// Condition `ScalingReady` of an actor with scaling enabled.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingReady {
    /// Status of the condition; `None` is `Unknown`.
    pub ready: Option<bool>,
    pub reason: Reason,
    pub message: String,
    /// When it changes without an event.
    pub again: Option<Timestamp>,
}

/// Computes the condition from the observed objects. An HPA may lack metrics until `limit`: KEDA and its metrics
/// adapter may just be starting. `last_scaled` is when the desired number of pods last changed.
pub fn scaling_ready(
    fault: Option<&Fault>,
    scaled_object: Option<&ScaledObjectRecord>,
    hpa: Option<&HpaRecord>,
    limit: Option<Duration>,
    last_scaled: Option<Timestamp>,
    now: Timestamp,
) -> ScalingReady {
    if let Some(fault) = fault {
        return judged(Some(false), fault.reason, fault.message.clone());
    }
    let Some(scaled_object) = scaled_object.filter(|found| !found.metadata.deleting) else {
        let text = "the ScaledObject waits until the workload exists, or until the previous autoscaler is gone";
        return judged(None, Reason::Progressing, text.to_owned());
    };
    let name = &scaled_object.metadata.key.name;
    if let KedaReady::False(text) = &scaled_object.ready {
        let text = format!("KEDA reports that ScaledObject {name} is not ready: {text}");
        return judged(Some(false), Reason::ScaledObjectNotReady, text);
    }
    let missing = hpa.zip(limit).and_then(|(hpa, limit)| {
        let (inactive, since) = metrics_are_missing(hpa, last_scaled)?;
        Some((inactive, limit, since.checked_add(limit).ok()?))
    });
    if let Some((inactive, limit, ends)) = &missing
        && *ends <= now
    {
        let text = format!(
            "the HorizontalPodAutoscaler has had no metrics for {} s: {}: {}",
            limit.as_secs(),
            inactive.reason,
            inactive.message
        );
        return judged(Some(false), Reason::MetricsUnavailable, text);
    }
    let mut ready = match (&scaled_object.ready, scaled_object.paused) {
        (KedaReady::True, false) => judged(
            Some(true),
            Reason::ScaledObjectReady,
            format!("KEDA reports that ScaledObject {name} is ready"),
        ),
        (KedaReady::True, true) => judged(
            Some(true),
            Reason::ScaledObjectReady,
            format!("ScaledObject {name} is paused by an annotation, so KEDA does not scale"),
        ),
        (KedaReady::Unknown | KedaReady::False(_), _) => judged(
            Some(true),
            Reason::ScaledObjectCreated,
            format!("ScaledObject {name} is applied; KEDA has not reported it ready yet"),
        ),
    };
    ready.again = missing.map(|(.., ends)| ends);
    ready
}

/// Why an HPA has no metrics, and since when. After a scale-up from 0 the HPA keeps the transition time of when scaling
/// stopped, so the time of the scale-up counts, too.
fn metrics_are_missing(
    hpa: &HpaRecord,
    last_scaled: Option<Timestamp>,
) -> Option<(&Inactive, Timestamp)> {
    let inactive = hpa.inactive.as_ref()?;
    let since = inactive.since.as_ref()?.0;
    let since = last_scaled.map_or(since, |scaled| since.max(scaled));
    Some((inactive, since))
}

fn judged(ready: Option<bool>, reason: Reason, message: String) -> ScalingReady {
    ScalingReady {
        ready,
        reason,
        message,
        again: None,
    }
}

#[cfg(test)]
mod tests;
