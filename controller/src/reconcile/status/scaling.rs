//! Scaling in the status.

use asya_shared::api::{AsyncActorStatus, ScalingMode};
use asya_shared::scaling::{KEDA_GROUP, KEDA_VERSION};
use k8s_openapi::jiff::Timestamp;

use super::common::reference;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ActiveOutcome, RolloutOutcome};
use crate::record::{HpaRecord, ScaleTarget};
use crate::scaling::autoscalers::Autoscalers;
use crate::scaling::ready::{ScalingReady, scaling_ready};
use crate::scaling::replicas::{LastScale, hpa_of};

/// The HPA that KEDA created for the actor, while scaling is on.
pub(super) fn hpa<'a>(observed: &'a Observed, outcome: &ActiveOutcome) -> Option<&'a HpaRecord> {
    let scaled_object = outcome.scaling.as_ref()?.scaled_object.as_ref()?;
    hpa_of(scaled_object, &observed.scaling.hpas).map(|hpa| &**hpa)
}

/// Condition `ScalingReady`; `None` while scaling is off.
pub(super) fn scaling_condition(
    observed: &Observed,
    outcome: &ActiveOutcome,
    hpa: Option<&HpaRecord>,
    (scale, now): (&LastScale, Timestamp),
) -> Option<ScalingReady> {
    let scaled = outcome.scaling.as_ref()?;
    let last = scale.time.as_ref().map(|at| at.0);
    let (fault, scaled_object) = (scaled.fault.as_ref(), scaled.scaled_object.as_deref());
    if let Some(text) = scaled.waits_for.filter(|_| fault.is_none()) {
        return Some(ScalingReady {
            ready: None,
            reason: Reason::NotProven,
            message: text.to_owned(),
            recheck_at: None,
        });
    }
    let limit = observed.deadlines.hpa_metrics;
    Some(scaling_ready(fault, scaled_object, hpa, limit, last, now))
}

/// Condition `ScalingReady` of an actor whose scaling is off while another autoscaler scales its workload. The number
/// of pods is left to that autoscaler, because two writers would overwrite each other forever (SAFE-25).
pub(super) fn other_autoscaler_condition(
    observed: &Observed,
    outcome: &ActiveOutcome,
) -> Option<ScalingReady> {
    let standalone = observed.standalone().filter(|it| it.scaling.is_none())?;
    let (scaling, name) = (&observed.scaling, &*observed.key().name);
    let autoscalers = Autoscalers {
        actor: name,
        scaled_object: scaling.scaled_object.ours().map(|it| &*it.metadata.uid),
        hpas: &scaling.hpas,
        scaled_objects: &scaling.scaled_objects,
    };
    let autoscaler =
        autoscalers.competing_autoscaler(&ScaleTarget::workload(standalone.kind, name))?;
    let workload = outcome.workload.as_ref()?;
    let kind = workload.kind.name();
    let desired = observed.desired.as_ref().ok()?;
    let replicas = desired.spec.workload.as_ref().and_then(|it| it.replicas);
    let (ready, reason, text) = match replicas {
        Some(replicas) => (
            false,
            Reason::RivalAutoscaler,
            format!(
                "{autoscaler} scales {kind} {name}, so spec.workload.replicas ({replicas}) has no effect; delete {autoscaler}, or remove spec.workload.replicas to leave the number of pods to it"
            ),
        ),
        None => (
            true,
            Reason::ScaledByOther,
            format!(
                "{autoscaler} scales {kind} {name}, and the operator leaves the number of pods to it; to change that, delete {autoscaler} and set spec.workload.replicas, or set spec.scaling.enabled to true"
            ),
        ),
    };
    Some(ScalingReady {
        ready: Some(ready),
        reason,
        message: text,
        recheck_at: None,
    })
}

/// When to requeue because of scaling.
pub(super) fn requeues(
    observed: &Observed,
    outcome: &ActiveOutcome,
    ready: Option<&ScalingReady>,
    new_status: &AsyncActorStatus,
    now: Timestamp,
) -> impl Iterator<Item = Requeue> {
    let fault = outcome.scaling.as_ref().and_then(|it| it.fault.as_ref());
    let timers = [ready.and_then(|it| it.recheck_at), outcome.keda_deadline];
    let timers = timers.into_iter().flatten();
    let timers = timers.filter_map(move |at| at.duration_since(now).try_into().ok());
    // The queue's URL has just changed in the status, so the next reconcile can configure KEDA.
    let url_changed = fault.is_some_and(|fault| fault.reason == Reason::QueueURLUnknown)
        && url(&observed.previous) != url(new_status);
    // A dry run passed in this reconcile lets the next one create the first `ScaledObject`.
    let verified = ready.is_some_and(|it| it.reason == Reason::NotProven)
        && matches!(*outcome.rollout, RolloutOutcome::InjectionVerified);
    fault
        .map(|fault| fault.retry)
        .into_iter()
        .chain(timers.map(Requeue::After))
        .chain((url_changed || verified).then_some(Requeue::Now))
}

fn url(status: &AsyncActorStatus) -> Option<&String> {
    status.queue.as_ref()?.url.as_ref()
}

/// Writes the scaling mode, its limits and the reference to the `ScaledObject`.
pub(super) fn set_fields(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    outcome: &ActiveOutcome,
) {
    let Ok(desired) = &observed.desired else {
        let previous = &observed.previous;
        status.scaling_mode = previous.scaling_mode.or(Some(ScalingMode::Manual));
        status.min_replicas = previous.min_replicas;
        status.max_replicas = previous.max_replicas;
        if outcome.stopped.is_none() {
            status
                .scaled_object_ref
                .clone_from(&previous.scaled_object_ref);
        }
        return;
    };
    let Some(scaling) = desired.spec.effective_scaling() else {
        status.scaling_mode = Some(ScalingMode::Manual);
        return;
    };
    status.scaling_mode = Some(ScalingMode::Keda);
    status.min_replicas = Some(scaling.min_replicas);
    status.max_replicas = Some(scaling.max_replicas);
    let scaled_object = outcome
        .scaling
        .as_ref()
        .and_then(|it| it.scaled_object.as_ref());
    let version = format!("{KEDA_GROUP}/{KEDA_VERSION}");
    status.scaled_object_ref = scaled_object.map(|_| reference(observed, &version, "ScaledObject"));
}
