//! Reports the result of a reconcile: a pure function computes the status, which is written once if it changed.

mod binding;
mod conditions;
mod deletion;
mod drain;
mod inventory;
mod leftovers;
pub mod parts;
mod queue;
mod restored;
mod scaling;
mod settling;
mod transport;
mod write;

use asya_shared::api::{AsyncActorStatus, Mode, ScalingMode, State};
use asya_shared::inject::selector;
use conditions::Conditions;
use deletion::{Blocked, of_deletion};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use write::write;

use super::desired::drain::Drain;
use super::model::child::unseen;
use super::model::condition_types::{SCALING_READY, TRANSPORT_READY, WORKLOAD_READY};
use super::model::observed::{Observed, is_done_once};
use super::model::outcome::{Ensured, Outcome};
use super::state::{self, Counts, LeftAlone, StateFacts, StateVerdict, WorkloadReady};
use super::status::parts::{
    Report, messages, progress_limit, ready_generation, reference, summarize_conditions,
    unready_limit,
};
use crate::cluster::rollouts;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::pods::summary::Pods;
use crate::scaling::ready::ScalingReady;
use crate::scaling::replicas::{LastScale, last_scale};
use crate::telemetry::events::EventReason;

pub use write::announce_end;

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
    let Some(report) = make(observed, outcome, now) else {
        return Ok(Requeue::AwaitChange);
    };
    if let Some((note, text)) = note(&observed.previous, &report.status) {
        context.events.tell(&observed.actor, note, text);
    }
    if let Some(wait) = settling::wait(observed, &report.status, now) {
        return Ok(report.retry.sooner(Requeue::After(wait)));
    }
    if report.status != observed.previous {
        write(context, &observed.actor, &report.status).await?;
        for (note, text) in report.notes {
            context.events.tell(&observed.actor, note, &text);
        }
    }
    Ok(report.retry)
}

/// Returns the first condition worth an Event that begins with this status.
fn note<'a>(
    before: &'a AsyncActorStatus,
    after: &'a AsyncActorStatus,
) -> Option<(EventReason, &'a str)> {
    let told = [
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
    told.into_iter().find_map(|(kind, reason, note)| {
        let now = find(after, kind).filter(|now| now.reason == reason.to_string())?;
        let was = find(before, kind).map(|was| (&was.reason, &was.message));
        (was != Some((&now.reason, &now.message))).then_some((note, &*now.message))
    })
}

/// Computes the report; `None` if the actor no longer exists.
pub fn make(observed: &Observed, outcome: &Outcome, now: Timestamp) -> Option<Report> {
    match outcome {
        Outcome::Gone => None,
        // Written once, when the deletion begins.
        Outcome::Unknown(retry) => Some(Report {
            status: if observed.previous.status == Some(State::Terminating) {
                observed.previous.clone()
            } else {
                of_deletion(observed, &Blocked::default(), &[], false, now)
            },
            retry: *retry,
            notes: Vec::new(),
        }),
        Outcome::Deleting {
            fault,
            deleted,
            retry,
            released,
        } => Some(Report {
            status: of_deletion(
                observed,
                &Blocked::by(fault.as_ref()),
                deleted,
                *released,
                now,
            ),
            retry: *retry,
            notes: Vec::new(),
        }),
        Outcome::Held { fault, .. } => {
            let blocked = Blocked {
                otherwise: Some(fault),
                ..Blocked::default()
            };
            Some(Report {
                status: of_deletion(observed, &blocked, &[], false, now),
                retry: fault.retry,
                notes: Vec::new(),
            })
        }
        Outcome::Ensured(ensured) => {
            let mut report = match &observed.binding {
                Some(seen) => binding::report(observed, seen, ensured, now),
                None => of_life(observed, ensured, now),
            };
            if let Some(Drain::Works(held)) = &observed.drain {
                drain::tell(&mut report, observed, held, now);
            }
            Some(report)
        }
    }
}

fn of_life(observed: &Observed, ensured: &Ensured, now: Timestamp) -> Report {
    let pods = Pods::count(&observed.pods, template_hash(observed, ensured), now);
    let (transport_fault, spec_fault) = transport::faults(observed, ensured);
    let since = progressing_since(observed, ensured, now);
    let hpa = scaling::hpa(observed, ensured);
    let counts = ensured.workload.as_ref().map(|it| Counts::of(it, hpa));
    let scale = last_scale(&observed.previous, counts.map(|it| it.desired), now);
    let of_others = scaling::by_others(observed, ensured);
    let scaling = scaling::judge(observed, ensured, hpa, (&scale, now)).or(of_others);
    let verdict = state::decide(&StateFacts {
        deleting: false,
        refused: spec_fault,
        transport: transport::wrong(observed, ensured, transport_fault),
        left_alone: left_alone(observed),
        child: ensured.fault.as_ref(),
        workload: ensured.workload.as_deref(),
        refusal: observed.refusal.as_ref(),
        pods: &pods,
        scaling: scaling.as_ref(),
        hpa,
        previous: observed.previous.status,
        previously_desired: observed.previous.desired_replicas,
        progressing_since: since,
        unready_limit: unready_limit(observed),
        progress_limit: progress_limit(observed),
        now,
    });
    let mut status = counted(observed, ensured, &pods, counts, scale);
    let queues = queue::tell(observed, ensured, &mut status);
    status.status = Some(verdict.state);
    status.progressing_since = verdict.progressing.then_some(Time(since));
    let of_rivals = restored::tell(&mut status, observed, ensured, now);
    let verdicts = (&verdict, scaling.as_ref());
    status.conditions = conditions(observed, ensured, transport_fault, verdicts, now);
    restored::set(&mut status, observed, now);
    // A workload that was scaled to zero must be applied again once it may run.
    status.ready_generation =
        ready_generation(observed, &status).filter(|_| ensured.stopped.is_none());
    summarize(&mut status);
    let faults = [transport_fault, spec_fault, ensured.fault.as_ref()];
    let retry = faults.into_iter().flatten().map(|fault| fault.retry);
    let again = verdict
        .again
        .and_then(|at| at.duration_since(now).try_into().ok());
    let of_scaling = scaling::again(observed, ensured, scaling.as_ref(), &status, now);
    Report {
        retry: retry
            .chain(again.map(Requeue::After))
            .chain(of_scaling)
            .chain(ensured.queue.retry())
            .chain(queues.retry)
            .chain(of_rivals.retry)
            .chain(unseen_change(ensured))
            .chain(ensured.postponed.then_some(Requeue::After(rollouts::AGAIN)))
            .fold(Requeue::AwaitChange, Requeue::sooner),
        notes: queues.notes.into_iter().chain(of_rivals.notes).collect(),
        status,
    }
}

/// Polls a workload that does not carry our labels yet, because no watch reports its deletion or that of its pods.
fn unseen_change(ensured: &Ensured) -> Option<Requeue> {
    let workload = ensured.workload.as_ref()?;
    let counts = workload.observed_generation < workload.generation || workload.total > 0;
    let moves = workload.metadata.deleting || (ensured.stopped.is_some() && counts);
    unseen(workload).filter(|_| moves).map(Requeue::After)
}

/// Template hash of the newest pods. A workload that is left alone may keep an older template; one being deleted is
/// replaced by one with the current template.
fn template_hash<'a>(observed: &'a Observed, ensured: &'a Ensured) -> Option<&'a str> {
    let wanted = || {
        observed
            .standalone()
            .map(|own| &*own.workload.template_hash)
    };
    match &ensured.workload {
        Some(workload) if !workload.metadata.deleting => workload.template_hash.as_deref(),
        _ => wanted(),
    }
}

fn left_alone(observed: &Observed) -> Option<LeftAlone> {
    if observed.actor.annotations.paused {
        return Some(LeftAlone::Paused);
    }
    is_done_once(&observed.actor, &observed.previous).then_some(LeftAlone::Done)
}

/// Restarts the clock when the spec or the number of ready pods changes (FW-26).
fn progressing_since(observed: &Observed, ensured: &Ensured, now: Timestamp) -> Timestamp {
    let previous = &observed.previous;
    let ready = ensured.workload.as_ref().map(|workload| workload.ready);
    let same = previous.observed_generation == Some(observed.actor.generation)
        && previous.ready_replicas == ready;
    let since = previous.progressing_since.as_ref().filter(|_| same);
    since.map_or(now, |since| since.0)
}

/// The status except STATUS and the conditions.
fn counted(
    observed: &Observed,
    ensured: &Ensured,
    pods: &Pods,
    counts: Option<Counts>,
    scale: LastScale,
) -> AsyncActorStatus {
    let name = &observed.key().name;
    let (queued_messages, processing_messages) = messages(observed, ensured);
    let mut status = AsyncActorStatus {
        mode: Some(Mode::Standalone),
        observed_generation: Some(observed.actor.generation),
        queued_messages,
        processing_messages,
        inventory: inventory::inventory(observed, ensured),
        ..AsyncActorStatus::default()
    };
    scaling::tell(&mut status, observed, ensured);
    status.last_scale_time = scale.time;
    status.last_scale_direction = scale.direction;
    status.last_scale_formatted = Some(scale.formatted);
    let (Some(workload), Some(counts)) = (&ensured.workload, counts) else {
        return status;
    };
    let Counts {
        desired,
        total,
        ready,
    } = counts;
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
    ensured: &Ensured,
    transport_fault: Option<&Fault>,
    (verdict, scaling): (&StateVerdict, Option<&ScalingReady>),
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::of(observed, now);
    transport::tell(&mut conditions, observed, ensured, transport_fault);
    if let Some(WorkloadReady {
        ready,
        reason,
        message,
    }) = &verdict.workload
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
        None if observed.desired.is_ok() || ensured.stopped.is_some() => {
            conditions.remove(SCALING_READY);
        }
        None => {}
    }
    let needed = [TRANSPORT_READY, WORKLOAD_READY];
    conditions.set_ready(&needed, &[SCALING_READY], observed.actor.annotations.paused);
    conditions.list
}

fn summarize(status: &mut AsyncActorStatus) {
    let told = status.conditions.iter().any(|c| c.type_ == SCALING_READY);
    let scales = told || status.scaling_mode == Some(ScalingMode::Keda);
    let all = [TRANSPORT_READY, WORKLOAD_READY, SCALING_READY];
    summarize_conditions(status, if scales { &all } else { &all[..2] });
}

#[cfg(test)]
mod tests;
