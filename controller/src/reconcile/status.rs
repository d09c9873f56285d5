//! Reports the result of a reconcile: a pure function computes the status, which is written once if it changed.

mod binding;
pub mod common;
mod conditions;
mod conflicts;
mod deletion;
mod drain;
mod inventory;
mod legacy_fields;
mod queue;
mod retired;
mod scaling;
mod transport;
mod write;
mod write_delay;

use asya_shared::api::{AsyncActorStatus, Mode, ScalingMode, State};
use asya_shared::inject::selector;
use conditions::Conditions;
use deletion::{Blocked, deletion_status};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use write::write;

use super::desired::drain::Drain;
use super::model::child::unwatched_poll_interval;
use super::model::condition_types::{SCALING_READY, TRANSPORT_READY, WORKLOAD_READY};
use super::model::observed::{Observed, is_once_completed};
use super::model::outcome::{ActiveOutcome, Outcome};
use super::state::{self, Counts, SkipReason, StateDecision, StateInputs, WorkloadReady};
use super::status::common::{
    Report, messages, ready_generation, reference, summarize_conditions, unready_limit,
};
use crate::cluster::rollouts;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::pods::summary::Pods;
use crate::scaling::ready::ScalingReady;
use crate::scaling::replicas::{LastScale, last_scale};
use crate::telemetry::events::EventReason;

pub use write::report_deletion;

/// Writes the status if it differs from the stored one. Returns when to requeue.
///
/// # Errors
/// When the status cannot be written.
pub async fn report(
    context: &Context,
    observed: &Observed,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Requeue, Error> {
    let Some(report) = build(observed, outcome, now) else {
        return Ok(Requeue::AwaitChange);
    };
    if let Some((reason, text)) = event_of_new_condition(&observed.previous, &report.status) {
        context.events.publish(&observed.actor, reason, text);
    }
    if let Some(wait) = write_delay::delay(observed, &report.status, now) {
        return Ok(report.retry.sooner(Requeue::After(wait)));
    }
    if report.status != observed.previous {
        write(context, &observed.actor, &report.status).await?;
        for (reason, text) in report.events {
            context.events.publish(&observed.actor, reason, &text);
        }
    }
    Ok(report.retry)
}

/// Returns the first condition worth an Event that begins with this status.
fn event_of_new_condition<'a>(
    previous: &'a AsyncActorStatus,
    after: &'a AsyncActorStatus,
) -> Option<(EventReason, &'a str)> {
    let reportable = [
        (
            WORKLOAD_READY,
            Reason::ValidationError,
            EventReason::ValidationFailed,
        ),
        (WORKLOAD_READY, Reason::NotOwned, EventReason::NotOwned),
        (SCALING_READY, Reason::NotOwned, EventReason::NotOwned),
    ];
    let find = |status: &'a AsyncActorStatus, kind: &str| {
        status.conditions.iter().find(|c| c.type_ == kind)
    };
    reportable.into_iter().find_map(|(kind, reason, event)| {
        let now = find(after, kind).filter(|now| now.reason == reason.to_string())?;
        let was = find(previous, kind).map(|was| (&was.reason, &was.message));
        (was != Some((&now.reason, &now.message))).then_some((event, &*now.message))
    })
}

/// Computes the report; `None` if the actor no longer exists.
pub fn build(observed: &Observed, outcome: &Outcome, now: Timestamp) -> Option<Report> {
    match outcome {
        Outcome::Finalized => None,
        // Written once, when the deletion begins.
        Outcome::DeletionUnknown(retry) => Some(Report {
            status: if observed.previous.status == Some(State::Terminating) {
                observed.previous.clone()
            } else {
                deletion_status(observed, &Blocked::default(), &[], false, now)
            },
            retry: *retry,
            events: Vec::new(),
        }),
        Outcome::Deleting {
            fault,
            deleted,
            retry,
            disowned,
        } => Some(Report {
            status: deletion_status(
                observed,
                &Blocked::from_fault(fault.as_ref()),
                deleted,
                *disowned,
                now,
            ),
            retry: *retry,
            events: Vec::new(),
        }),
        Outcome::DeletionBlocked { fault, .. } => {
            let blocked = Blocked {
                other: Some(fault),
                ..Blocked::default()
            };
            Some(Report {
                status: deletion_status(observed, &blocked, &[], false, now),
                retry: fault.retry,
                events: Vec::new(),
            })
        }
        Outcome::Active(active_outcome) => {
            let mut report = match &observed.binding {
                Some(binding) => binding::report(observed, binding, active_outcome, now),
                None => standalone_report(observed, active_outcome, now),
            };
            if let Some(Drain::Waiting(undrained)) = &observed.drain {
                drain::report_draining(&mut report, observed, undrained, now);
            }
            Some(report)
        }
    }
}

fn standalone_report(
    observed: &Observed,
    active_outcome: &ActiveOutcome,
    now: Timestamp,
) -> Report {
    let pods = Pods::count(&observed.pods, template_hash(observed, active_outcome), now);
    let (transport_fault, spec_fault) = transport::faults(observed, active_outcome);
    let since = progressing_since(observed, active_outcome, now);
    let hpa = scaling::hpa(observed, active_outcome);
    let counts = active_outcome
        .workload
        .as_ref()
        .map(|it| Counts::of(it, hpa));
    let scale = last_scale(&observed.previous, counts.map(|it| it.desired), now);
    let other_autoscaler = scaling::other_autoscaler_condition(observed, active_outcome);
    let scaling = scaling::scaling_condition(observed, active_outcome, hpa, (&scale, now))
        .or(other_autoscaler);
    let decision = state::decide(&StateInputs {
        deleting: false,
        spec_fault,
        transport_fault: transport::unusable_reason(observed, active_outcome, transport_fault),
        skip_reason: skip_reason(observed),
        workload_fault: active_outcome.fault.as_ref(),
        workload: active_outcome.workload.as_deref(),
        creation_failure: observed.creation_failure.as_ref(),
        pods: &pods,
        scaling: scaling.as_ref(),
        hpa,
        previous: observed.previous.status,
        previously_desired: observed.previous.desired_replicas,
        progressing_since: since,
        unready_limit: unready_limit(observed),
        progress_limit: observed.progress_limit(),
        now,
    });
    let mut status = base_status(observed, active_outcome, &pods, counts, scale);
    let queues = queue::set_queues(observed, active_outcome, &mut status);
    status.status = Some(decision.state);
    status.progressing_since = decision.progressing.then_some(Time(since));
    let conflict_report = conflicts::set_conflicts(&mut status, observed, active_outcome, now);
    let decisions = (&decision, scaling.as_ref());
    status.conditions = conditions(observed, active_outcome, transport_fault, decisions, now);
    conflicts::set_condition(&mut status, observed, now);
    // A workload that was scaled to zero must be applied again once it may run.
    status.ready_generation =
        ready_generation(observed, &status).filter(|_| active_outcome.stopped.is_none());
    summarize(&mut status);
    let faults = [transport_fault, spec_fault, active_outcome.fault.as_ref()];
    let retry = faults.into_iter().flatten().map(|fault| fault.retry);
    let recheck = decision
        .recheck_at
        .and_then(|at| at.duration_since(now).try_into().ok());
    let scaling_requeues =
        scaling::requeues(observed, active_outcome, scaling.as_ref(), &status, now);
    Report {
        retry: retry
            .chain(recheck.map(Requeue::After))
            .chain(scaling_requeues)
            .chain(active_outcome.queue.retry())
            .chain(queues.retry)
            .chain(conflict_report.retry)
            .chain(poll_unwatched(active_outcome))
            .chain(
                active_outcome
                    .postponed
                    .then_some(Requeue::After(rollouts::FALLBACK_REQUEUE)),
            )
            .fold(Requeue::AwaitChange, Requeue::sooner),
        events: queues
            .events
            .into_iter()
            .chain(conflict_report.events)
            .collect(),
        status,
    }
}

/// Polls a workload that does not carry our labels yet, because no watch reports its deletion or that of its pods.
fn poll_unwatched(active_outcome: &ActiveOutcome) -> Option<Requeue> {
    let workload = active_outcome.workload.as_ref()?;
    let may_have_pods = workload.observed_generation < workload.generation || workload.total > 0;
    let is_changing =
        workload.metadata.deleting || (active_outcome.stopped.is_some() && may_have_pods);
    unwatched_poll_interval(workload)
        .filter(|_| is_changing)
        .map(Requeue::After)
}

/// Template hash of the newest pods. A workload that is left alone may keep an older template; one being deleted is
/// replaced by one with the current template.
fn template_hash<'a>(observed: &'a Observed, active_outcome: &'a ActiveOutcome) -> Option<&'a str> {
    let desired_hash = || {
        observed
            .standalone()
            .map(|standalone| &*standalone.workload.template_hash)
    };
    match &active_outcome.workload {
        Some(workload) if !workload.metadata.deleting => workload.template_hash.as_deref(),
        _ => desired_hash(),
    }
}

fn skip_reason(observed: &Observed) -> Option<SkipReason> {
    if observed.actor.annotations.paused {
        return Some(SkipReason::Paused);
    }
    is_once_completed(&observed.actor, &observed.previous).then_some(SkipReason::OnceCompleted)
}

/// Restarts the clock when the spec or the number of ready pods changes (FW-26).
fn progressing_since(
    observed: &Observed,
    active_outcome: &ActiveOutcome,
    now: Timestamp,
) -> Timestamp {
    let previous = &observed.previous;
    let ready = active_outcome
        .workload
        .as_ref()
        .map(|workload| workload.ready);
    let same = previous.observed_generation == Some(observed.actor.generation)
        && previous.ready_replicas == ready;
    let since = previous.progressing_since.as_ref().filter(|_| same);
    since.map_or(now, |since| since.0)
}

/// The status except STATUS and the conditions.
fn base_status(
    observed: &Observed,
    active_outcome: &ActiveOutcome,
    pods: &Pods,
    counts: Option<Counts>,
    scale: LastScale,
) -> AsyncActorStatus {
    let name = &observed.key().name;
    let (queued_messages, processing_messages) = messages(observed, active_outcome);
    let mut status = AsyncActorStatus {
        mode: Some(Mode::Standalone),
        observed_generation: Some(observed.actor.generation),
        queued_messages,
        processing_messages,
        inventory: inventory::inventory(observed, active_outcome),
        ..AsyncActorStatus::default()
    };
    scaling::set_fields(&mut status, observed, active_outcome);
    status.last_scale_time = scale.time;
    status.last_scale_direction = scale.direction;
    status.last_scale_formatted = Some(scale.formatted);
    let (Some(workload), Some(counts)) = (&active_outcome.workload, counts) else {
        return status;
    };
    let Counts {
        desired,
        total,
        ready,
    } = counts;
    // Unlike a Deployment's, this field counts ready pods: column Running shows it (STA-10). `/scale` reads
    // `totalReplicas`.
    status.replicas = Some(ready);
    status.ready_replicas = Some(ready);
    status.desired_replicas = Some(desired);
    status.total_replicas = Some(total);
    status.pending_replicas = Some(pods.pending);
    status.failing_pods = Some(pods.failing);
    status.replicas_summary = Some(format!("{ready}/{desired}"));
    status.ready_replicas_summary = Some(format!("{ready}/{total}"));
    let selector = selector(name, workload.kind).map(|(key, value)| format!("{key}={value}"));
    status.selector = Some(selector.join(","));
    let kind = workload.kind.name();
    status.workload_ref = Some(reference(observed, "apps/v1", kind));
    status
}

fn conditions(
    observed: &Observed,
    active_outcome: &ActiveOutcome,
    transport_fault: Option<&Fault>,
    (decision, scaling): (&StateDecision, Option<&ScalingReady>),
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::of(observed, now);
    transport::set_condition(&mut conditions, observed, active_outcome, transport_fault);
    if let Some(WorkloadReady {
        ready,
        reason,
        message,
    }) = &decision.workload
    {
        conditions.set(WORKLOAD_READY, *ready, *reason, message);
    }
    match scaling {
        Some(ScalingReady {
            ready,
            reason,
            message,
            ..
        }) => conditions.set(SCALING_READY, *ready, *reason, message),
        // KEDA-8
        None if observed.desired.is_ok() || active_outcome.stopped.is_some() => {
            conditions.remove(SCALING_READY);
        }
        None => {}
    }
    let needed = [TRANSPORT_READY, WORKLOAD_READY];
    conditions.set_ready(&needed, &[SCALING_READY], observed.actor.annotations.paused);
    conditions.list
}

fn summarize(status: &mut AsyncActorStatus) {
    let has_condition = status.conditions.iter().any(|c| c.type_ == SCALING_READY);
    let scales = has_condition || status.scaling_mode == Some(ScalingMode::Keda);
    let all = [TRANSPORT_READY, WORKLOAD_READY, SCALING_READY];
    summarize_conditions(status, if scales { &all } else { &all[..2] });
}

#[cfg(test)]
mod tests;
