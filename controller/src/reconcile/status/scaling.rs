//! Scaling in the status.

use asya_shared::api::{AsyncActorStatus, ObjectReference, QueueStatus, ScalingMode};
use asya_shared::scaling::{KEDA_GROUP, KEDA_VERSION};
use k8s_openapi::jiff::Timestamp;

use super::common::reference;
use crate::clock_skew::may_have_passed;
use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::CommonOutcome;
use crate::record::HpaRecord;
use crate::scaling::ready::{ScalingReady, scaling_ready};
use crate::scaling::replicas::{LastScale, hpa_of, last_scale};

/// The modes' input to the report of scaling.
pub(super) struct ScalingStatusInputs<'a> {
    pub(super) outcome: &'a CommonOutcome,
    /// The queue, as reported by this reconcile.
    pub(super) queue: Option<&'a QueueStatus>,
    /// Condition `ScalingReady` if another autoscaler scales the workload while the actor's own scaling is off.
    pub(super) other_autoscaler: Option<ScalingReady>,
    /// The workloads were stopped (QUE-3).
    pub(super) stopped: bool,
    /// A dry run of this reconcile has shown that the first pods of a target get the sidecar.
    pub(super) pods_verified: bool,
}

/// Scaling, as reported.
pub(super) struct ScalingReport<'a> {
    pub(super) fields: ScalingFields,
    /// The HPA that KEDA created for the actor, while scaling is on.
    pub(super) hpa: Option<&'a HpaRecord>,
    /// Condition `ScalingReady`; `None` while scaling is off.
    pub(super) ready: Option<ScalingReady>,
    /// When to requeue because of scaling.
    pub(super) requeue: Requeue,
    /// Evidence that the queue has scaled the target, even if it no longer does.
    pub(super) remembered_reference: Option<ObjectReference>,
}

/// The fields of the status about scaling.
pub(super) struct ScalingFields {
    pub(super) settings: ScalingSettings,
    last_scale: LastScale,
}

/// The scaling mode, its limits and the reference to the `ScaledObject`.
#[derive(Default)]
pub(super) struct ScalingSettings {
    mode: Option<ScalingMode>,
    min_replicas: Option<i32>,
    max_replicas: Option<i32>,
    pub(super) scaled_object_ref: Option<ObjectReference>,
}

impl ScalingFields {
    pub(super) fn write_into(self, status: &mut AsyncActorStatus) {
        status.scaling_mode = self.settings.mode;
        status.min_replicas = self.settings.min_replicas;
        status.max_replicas = self.settings.max_replicas;
        status.scaled_object_ref = self.settings.scaled_object_ref;
        status.last_scale_time = self.last_scale.time;
        status.last_scale_direction = self.last_scale.direction;
        status.last_scale_formatted = Some(self.last_scale.formatted);
    }
}

/// Reports scaling. The HPA may decide the `desired` number of pods.
pub(super) fn scaling_report<'a>(
    observed: &'a Observed,
    inputs: ScalingStatusInputs<'_>,
    desired: impl FnOnce(Option<&HpaRecord>) -> Option<i32>,
    now: Timestamp,
) -> ScalingReport<'a> {
    // The queue's URL has just changed in the status, so the next reconcile can configure KEDA.
    let url_changed = url(observed.previous.queue.as_ref()) != url(inputs.queue);
    let remembered_reference = remembered_reference(observed);
    let scaling = inputs.outcome.scaling.as_deref();
    let scaled_object = scaling.and_then(|it| it.scaled_object.as_deref());
    let hpas = &observed.scaling.hpas;
    let hpa = scaled_object.and_then(|scaled_object| hpa_of(scaled_object, hpas).map(|hpa| &**hpa));
    let scale = last_scale(&observed.previous, desired(hpa), now);
    let scaled_at = scale.time.as_ref().map(|at| at.0);
    let scaled_at = scaled_at.filter(|at| may_have_passed(*at, now));
    let limit = observed.deadlines.hpa_metrics;
    let own = scaling.map(|scaling| match (&scaling.fault, &scaling.waits_for) {
        (None, Some(wait)) => {
            let (reason, text) = wait.describe();
            ConditionValue::new(ConditionStatus::Unknown, reason, text).into()
        }
        (fault, _) => scaling_ready(fault.as_ref(), scaled_object, hpa, limit, scaled_at, now),
    });
    let fields = ScalingFields {
        settings: settings(observed, &inputs),
        last_scale: scale,
    };
    let verified = inputs.pods_verified;
    let ready = own.or(inputs.other_autoscaler);
    ScalingReport {
        fields,
        hpa,
        requeue: requeue(inputs.outcome, ready.as_ref(), url_changed, verified, now),
        ready,
        remembered_reference,
    }
}

/// When to requeue because of scaling.
fn requeue(
    outcome: &CommonOutcome,
    ready: Option<&ScalingReady>,
    url_changed: bool,
    pods_verified: bool,
    now: Timestamp,
) -> Requeue {
    let fault = outcome.scaling.as_ref().and_then(|it| it.fault.as_ref());
    let timers = [ready.and_then(|it| it.recheck_at), outcome.keda_deadline];
    let timers = timers.into_iter().flatten();
    let timers = timers.filter_map(|at| at.duration_since(now).try_into().ok());
    let has_url = url_changed && fault.is_some_and(|fault| fault.reason == Reason::QueueURLUnknown);
    // A dry run passed in this reconcile lets the next one create the first `ScaledObject`.
    let verified =
        pods_verified && ready.is_some_and(|it| it.condition.reason == Reason::NotProven);
    fault
        .map(|fault| fault.requeue)
        .into_iter()
        .chain(timers.map(Requeue::After))
        .chain((has_url || verified).then_some(Requeue::Now))
        .fold(Requeue::AwaitChange, Requeue::sooner)
}

fn url(queue: Option<&QueueStatus>) -> Option<&String> {
    queue?.url.as_ref()
}

fn settings(observed: &Observed, inputs: &ScalingStatusInputs<'_>) -> ScalingSettings {
    let Ok(desired) = &observed.desired else {
        let previous = &observed.previous;
        let reference = previous.scaled_object_ref.as_ref();
        return ScalingSettings {
            mode: previous.scaling_mode.or(Some(ScalingMode::Manual)),
            min_replicas: previous.min_replicas,
            max_replicas: previous.max_replicas,
            scaled_object_ref: reference.filter(|_| !inputs.stopped).cloned(),
        };
    };
    let Some(scaling) = desired.spec.effective_scaling() else {
        return ScalingSettings {
            mode: Some(ScalingMode::Manual),
            ..ScalingSettings::default()
        };
    };
    let scaled_object = inputs
        .outcome
        .scaling
        .as_ref()
        .and_then(|it| it.scaled_object.as_ref());
    ScalingSettings {
        mode: Some(ScalingMode::Keda),
        min_replicas: Some(scaling.min_replicas),
        max_replicas: Some(scaling.max_replicas),
        scaled_object_ref: scaled_object.map(|_| scaled_object_reference(observed)),
    }
}

fn scaled_object_reference(observed: &Observed) -> ObjectReference {
    let version = format!("{KEDA_GROUP}/{KEDA_VERSION}");
    reference(observed, &version, "ScaledObject")
}

/// Evidence that the queue has scaled the target (SO-6): the reference in status, or the `ScaledObject` itself, whose
/// status write may have been lost.
pub(super) fn remembered_reference(observed: &Observed) -> Option<ObjectReference> {
    let scaled_object = observed.scaling.scaled_object.ours();
    let existing = scaled_object.map(|_| scaled_object_reference(observed));
    observed.previous.scaled_object_ref.clone().or(existing)
}
