//! The desired number of pods, and when it last changed (KEDA-11, STA-9).

use std::sync::Arc;

use asya_shared::api::AsyncActorStatus;
use asya_shared::scaling::hpa_name;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{RoundMode, Timestamp, TimestampRound, Unit};

use crate::record::{HpaRecord, ScaledObjectRecord};

/// Placeholder while the number has never changed.
const NEVER: &str = "-";

/// The HPA that KEDA created for this `ScaledObject`.
pub fn hpa_of<'a>(
    scaled_object: &ScaledObjectRecord,
    hpas: &'a [Arc<HpaRecord>],
) -> Option<&'a Arc<HpaRecord>> {
    let default = || hpa_name(&scaled_object.metadata.key.name);
    let name = scaled_object.hpa_name.as_deref();
    let name = name.map_or_else(default, str::to_owned);
    hpas.iter().find(|hpa| {
        let owner = hpa.metadata.controller.as_ref();
        *hpa.metadata.key.name == *name
            && owner.is_some_and(|owner| owner.uid == scaled_object.metadata.uid)
    })
}

/// The desired number of pods. At 0 replicas the HPA is inactive, and its number is stale.
pub fn desired_replicas(workload: i32, hpa: Option<&HpaRecord>) -> i32 {
    match hpa {
        Some(hpa) if workload > 0 && hpa.desired > 0 => hpa.desired,
        _ => workload,
    }
}

/// When and in which direction the desired number of pods last changed.
#[derive(Clone, Debug, PartialEq)]
pub struct LastScale {
    /// `lastScaleTime`
    pub time: Option<Time>,
    /// `lastScaleDirection`
    pub direction: Option<String>,
    /// `lastScaleFormatted`
    pub formatted: String,
}

/// Compares with the status of the last reconcile; the first number observed is not a change.
pub fn last_scale(previous: &AsyncActorStatus, desired: Option<i32>, now: Timestamp) -> LastScale {
    let numbers = previous.desired_replicas.zip(desired);
    let Some((last, desired)) = numbers.filter(|(last, desired)| last != desired) else {
        return LastScale {
            time: previous.last_scale_time.clone(),
            direction: previous.last_scale_direction.clone(),
            formatted: previous
                .last_scale_formatted
                .clone()
                .unwrap_or_else(|| NEVER.to_owned()),
        };
    };
    let direction = if last < desired { "up" } else { "down" };
    // The API server stores seconds: truncate, so that the next reconcile compares equal.
    let seconds = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Trunc);
    let at = now.round(seconds).unwrap_or(now);
    LastScale {
        time: Some(Time(at)),
        direction: Some(direction.to_owned()),
        formatted: format!("{at} ({direction})"),
    }
}

#[cfg(test)]
mod tests;
