//! Reports a standalone actor.

mod conditions;

use asya_shared::api::{AsyncActorStatus, Mode, ScalingMode, WorkloadKind};
use asya_shared::inject::selector;
use conditions::standalone_conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::common::{ModeReport, reference};
use super::drift::drift_report;
use super::other_autoscaler::other_autoscaler_condition;
use super::replicas::set_replicas;
use super::scaling::{ScalingStatusInputs, scaling_report};
use super::transport::TransportSummary;
use crate::clock_skew::may_have_passed;
use crate::cluster::rollouts;
use crate::fault::Requeue;
use crate::pods::summary::PodSummary;
use crate::reconcile::model::child::unwatched_poll_interval;
use crate::reconcile::model::observed::{Observed, is_reconcile_once_done};
use crate::reconcile::model::outcome::StandaloneOutcome;
use crate::reconcile::status::state::{self, ReplicaCounts, SkipReason, StateInputs};
use crate::record::HpaRecord;

pub(super) fn standalone_report(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    outcome: &StandaloneOutcome,
    transport: &TransportSummary<'_>,
    now: Timestamp,
) -> ModeReport {
    status.mode = Some(Mode::Standalone);
    let workload = outcome.workload.as_deref();
    let since = progressing_since(observed, outcome, now);
    let template_hash = template_hash(observed, outcome);
    let skip_reason = skip_reason(observed);
    let pods = PodSummary::count(&observed.pods, template_hash, now);
    let desired =
        |hpa: Option<&HpaRecord>| workload.map(|workload| ReplicaCounts::of(workload, hpa).desired);
    let scaling_inputs = ScalingStatusInputs {
        outcome: &outcome.common,
        queue: status.queue.as_ref(),
        other_autoscaler: other_autoscaler_condition(observed, outcome),
        stopped: outcome.stopped.is_some(),
        pods_verified: false,
    };
    let scaling = scaling_report(observed, scaling_inputs, desired, now);
    scaling.fields.write_into(status);
    let decision = state::decide(&StateInputs {
        deleting: false,
        spec_fault: transport.spec_fault,
        transport_fault: transport.unusable,
        skip_reason,
        workload_fault: outcome.common.fault.as_ref(),
        workload,
        creation_failure: observed.creation_failure.as_ref(),
        pods: &pods,
        scaling: scaling.ready.as_ref(),
        hpa: scaling.hpa,
        previous: observed.previous.status,
        previously_desired: observed.previous.desired_replicas,
        progressing_since: since,
        unready_limit: observed.unready_limit(),
        progress_limit: observed.progress_limit(),
        now,
    });
    status.progressing_since = decision.progressing.then_some(Time(since));
    if let Some(workload) = workload {
        set_replicas(status, ReplicaCounts::of(workload, scaling.hpa), &pods);
        set_workload(status, observed, workload.kind);
    }
    let drift = drift_report(observed, outcome, now);
    drift.fields.write_into(status);
    let expects_scaling = status.scaling_mode == Some(ScalingMode::Keda);
    let postponed = Requeue::After(rollouts::FALLBACK_REQUEUE);
    ModeReport {
        state: decision.state,
        conditions: standalone_conditions(
            observed,
            outcome,
            decision.workload,
            scaling.ready,
            drift.condition,
            expects_scaling,
        ),
        requeue: (drift.requeues.into_iter())
            .chain(poll_unwatched(outcome))
            .chain(outcome.postponed.then_some(postponed))
            .fold(scaling.requeue, Requeue::sooner),
        recheck_at: decision.recheck_at,
        events: drift.events,
    }
}

/// Writes the reference to the workload, and the selector of its pods.
fn set_workload(status: &mut AsyncActorStatus, observed: &Observed, kind: WorkloadKind) {
    let labels = selector(&observed.key().name, kind).map(|(key, value)| format!("{key}={value}"));
    status.selector = Some(labels.join(","));
    status.workload_ref = Some(reference(observed, "apps/v1", kind.name()));
}

/// Polls a workload that does not carry our labels yet, because no watch reports its deletion or that of its pods.
fn poll_unwatched(outcome: &StandaloneOutcome) -> Option<Requeue> {
    let workload = outcome.workload.as_ref()?;
    let may_have_pods = workload.observed_generation < workload.generation || workload.total > 0;
    let is_changing = workload.metadata.deleting || (outcome.stopped.is_some() && may_have_pods);
    unwatched_poll_interval(workload)
        .filter(|_| is_changing)
        .map(Requeue::After)
}

/// Template hash of the newest pods. A workload that is left alone may keep an older template; one being deleted is
/// replaced by one with the current template.
fn template_hash<'a>(observed: &'a Observed, outcome: &'a StandaloneOutcome) -> Option<&'a str> {
    let desired_hash = || {
        observed
            .standalone()
            .map(|standalone| &*standalone.workload.template_hash)
    };
    match &outcome.workload {
        Some(workload) if !workload.metadata.deleting => workload.template_hash.as_deref(),
        _ => desired_hash(),
    }
}

fn skip_reason(observed: &Observed) -> Option<SkipReason> {
    if observed.actor.annotations.paused {
        return Some(SkipReason::Paused);
    }
    is_reconcile_once_done(&observed.actor, &observed.previous)
        .then_some(SkipReason::ReconcileOnceDone)
}

/// Restarts the clock when the spec or the number of ready pods changes (FW-26), and if another one ran ahead
/// (SAFE-43).
fn progressing_since(
    observed: &Observed,
    outcome: &StandaloneOutcome,
    now: Timestamp,
) -> Timestamp {
    let previous = &observed.previous;
    let ready = outcome.workload.as_ref().map(|workload| workload.ready);
    let same = previous.observed_generation == Some(observed.actor.generation)
        && previous.ready_replicas == ready;
    let since = previous.progressing_since.as_ref().map(|since| since.0);
    since
        .filter(|since| same && may_have_passed(*since, now))
        .unwrap_or(now)
}
