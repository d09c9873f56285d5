//! What status tells of scaling.

use asya_shared::api::{AsyncActorStatus, ScalingMode};
use asya_shared::scaling::{KEDA_GROUP, KEDA_VERSION};
use k8s_openapi::jiff::Timestamp;

use super::reference;
use crate::reconcile::apply::Ensured;
use crate::reconcile::observe::Observed;
use crate::reconcile::{Reason, Retry};
use crate::record::HpaRecord;
use crate::scaling::ready::{ScalingReady, scaling_ready};
use crate::scaling::replicas::{LastScale, hpa_of};

/// The HPA that KEDA made for the actor, while scaling is on.
pub(super) fn hpa<'a>(observed: &'a Observed, ensured: &Ensured) -> Option<&'a HpaRecord> {
    let scaled_object = ensured.scaling.as_ref()?.scaled_object.as_ref()?;
    hpa_of(scaled_object, &observed.scaling.hpas).map(|hpa| &**hpa)
}

/// Condition `ScalingReady`; `None` while scaling is off.
pub(super) fn judge(
    observed: &Observed,
    ensured: &Ensured,
    hpa: Option<&HpaRecord>,
    (scale, now): (&LastScale, Timestamp),
) -> Option<ScalingReady> {
    let scaled = ensured.scaling.as_ref()?;
    let last = scale.time.as_ref().map(|at| at.0);
    let (fault, found) = (scaled.fault.as_ref(), scaled.scaled_object.as_deref());
    let limit = observed.deadlines.hpa_metrics;
    Some(scaling_ready(fault, found, hpa, limit, last, now))
}

/// When to look again because of scaling; `told` is the status of this pass.
pub(super) fn again(
    observed: &Observed,
    ensured: &Ensured,
    ready: Option<&ScalingReady>,
    told: &AsyncActorStatus,
    now: Timestamp,
) -> impl Iterator<Item = Retry> {
    let fault = ensured.scaling.as_ref().and_then(|it| it.fault.as_ref());
    let timers = [ready.and_then(|it| it.again), ensured.released_by];
    let timers = timers.into_iter().flatten();
    let timers = timers.filter_map(move |at| at.duration_since(now).try_into().ok());
    // What KEDA could not be told in this pass it can in the next.
    let found = fault.is_some_and(|fault| fault.reason == Reason::QueueURLUnknown)
        && url(&observed.previous) != url(told);
    fault
        .map(|fault| fault.retry)
        .into_iter()
        .chain(timers.map(Retry::After))
        .chain(found.then_some(Retry::Now))
}

fn url(status: &AsyncActorStatus) -> Option<&String> {
    status.queue.as_ref()?.url.as_ref()
}

/// Who decides the number of pods, and within which limits.
pub(super) fn tell(status: &mut AsyncActorStatus, observed: &Observed, ensured: &Ensured) {
    let Ok(desired) = &observed.desired else {
        let previous = &observed.previous;
        status.scaling_mode = previous.scaling_mode.or(Some(ScalingMode::Manual));
        status.min_replicas = previous.min_replicas;
        status.max_replicas = previous.max_replicas;
        if ensured.stopped.is_none() {
            status
                .scaled_object_ref
                .clone_from(&previous.scaled_object_ref);
        }
        return;
    };
    let Some(scaling) = desired.spec.scaling_in_force() else {
        status.scaling_mode = Some(ScalingMode::Manual);
        return;
    };
    status.scaling_mode = Some(ScalingMode::Keda);
    status.min_replicas = Some(scaling.min_replicas);
    status.max_replicas = Some(scaling.max_replicas);
    let scaled_object = ensured
        .scaling
        .as_ref()
        .and_then(|it| it.scaled_object.as_ref());
    let version = format!("{KEDA_GROUP}/{KEDA_VERSION}");
    status.scaled_object_ref = scaled_object.map(|_| reference(observed, &version, "ScaledObject"));
}
