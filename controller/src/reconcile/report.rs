//! Tells what a pass found and did: the status, as a pure function, and one write if it differs.

mod binding;
mod conditions;
mod deletion;
mod drain;
mod inventory;
mod leftovers;
mod queue;
mod restored;
mod scaling;
mod settling;
mod transport;
mod write;

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, Mode, ObjectReference, ScalingMode, State};
use asya_shared::inject::selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

pub use write::announce_end;

use conditions::Conditions;
use deletion::{Blocked, of_deletion};
use write::write;

use super::apply::{Ensured, Outcome, QueueState};
use super::observe::Observed;
use super::plan::drain::Drain;
use super::plan::is_done_once;
use super::pods::Pods;
use super::state::{self, Counts, Facts, LeftAlone, Verdict, WorkloadReady};
use super::{Context, Error, Fault, Reason, Retry, unseen};
use crate::events::Note;
use crate::queue::depths::Told;
use crate::record::Key;
use crate::rollouts;
use crate::scaling::ready::ScalingReady;
use crate::scaling::replicas::{LastScale, last_scale};

const TRANSPORT_READY: &str = "TransportReady";
const WORKLOAD_READY: &str = "WorkloadReady";
const SCALING_READY: &str = "ScalingReady";
const READY: &str = "Ready";
const CONFLICT: &str = "Conflict";

/// What a pass has to tell, and when it should be followed by another.
#[derive(Debug)]
pub struct Report {
    /// The whole status.
    pub status: AsyncActorStatus,
    /// When to look again.
    pub retry: Retry,
    /// What is worth an Event once the status tells it.
    pub notes: Vec<(Note, String)>,
}

/// Writes the status of a pass if it differs from the stored one. Answers when to look again.
///
/// # Errors
/// When the status cannot be written.
pub async fn report(
    context: &Context,
    observed: &Observed,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<Retry, Error> {
    let Some(report) = make(observed, outcome, now) else {
        return Ok(Retry::OnChange);
    };
    if let Some((note, text)) = note(&observed.previous, &report.status) {
        context.events.tell(&observed.actor, note, text);
    }
    if let Some(wait) = settling::wait(observed, &report.status, now) {
        return Ok(report.retry.sooner(Retry::After(wait)));
    }
    if report.status != observed.previous {
        write(context, &observed.actor, &report.status).await?;
        for (note, text) in report.notes {
            context.events.tell(&observed.actor, note, &text);
        }
    }
    Ok(report.retry)
}

/// What is worth an Event, the moment that it begins.
fn note<'a>(before: &'a AsyncActorStatus, after: &'a AsyncActorStatus) -> Option<(Note, &'a str)> {
    let told = [
        (
            WORKLOAD_READY,
            Reason::ValidationError,
            Note::ValidationFailed,
        ),
        (WORKLOAD_READY, Reason::NotOwned, Note::NotOwned),
        (SCALING_READY, Reason::NotOwned, Note::NotOwned),
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

/// Whether the actor was not ready for this reason already: an Event is written once for each obstacle.
pub fn was_told(observed: &Observed, reason: Reason) -> bool {
    let reason = reason.to_string();
    let mut before = observed.previous.conditions.iter();
    before.any(|it| it.type_ == READY && it.reason == reason)
}

/// `None` when there is nobody left to tell.
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
    let verdict = state::decide(&Facts {
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
    // What was left without pods is to be applied again one day.
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
            .chain(again.map(Retry::After))
            .chain(of_scaling)
            .chain(ensured.queue.retry())
            .chain(queues.retry)
            .chain(of_rivals.retry)
            .chain(unseen_change(ensured))
            .chain(ensured.postponed.then_some(Retry::After(rollouts::AGAIN)))
            .fold(Retry::OnChange, Retry::sooner),
        notes: queues.notes.into_iter().chain(of_rivals.notes).collect(),
        status,
    }
}

/// No watch tells what becomes of a workload that does not bear our labels yet: its end, or that of its pods.
fn unseen_change(ensured: &Ensured) -> Option<Retry> {
    let workload = ensured.workload.as_ref()?;
    let counts = workload.observed_generation < workload.generation || workload.total > 0;
    let moves = workload.metadata.deleting || (ensured.stopped.is_some() && counts);
    unseen(workload).filter(|_| moves).map(Retry::After)
}

/// What the newest pods bear: the workload may have an older template than it would get today, as long as it is
/// left alone. One that is on its way out is followed by one with the template of today.
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

/// FW-21: a fact of its own, because conditions steer nothing (FW-30). While pods of an older template work, the actor
/// is not ready with this spec. One that is going has none any more that it could become ready with.
fn ready_generation(observed: &Observed, status: &AsyncActorStatus) -> Option<i64> {
    let annotations = &observed.actor.annotations;
    let generation = observed.actor.generation;
    let known = observed.previous.ready_generation;
    let deleting = observed.actor.metadata.deleting;
    let known = known.filter(|known| *known == generation || deleting);
    let mut conditions = status.conditions.iter();
    let is_ready = conditions.any(|it| it.type_ == READY && it.status == "True")
        && status.status != Some(State::Updating)
        && !annotations.paused;
    let reached = is_ready.then_some(generation);
    known.or(reached).filter(|_| annotations.once)
}

/// How long a pod may run without being ready; `None` is for ever.
fn unready_limit(observed: &Observed) -> Option<Duration> {
    let default = observed.deadlines.unready;
    let desired = observed.desired.as_ref();
    desired.map_or(default, |desired| desired.spec.readiness_limit(default))
}

/// How long a change may go on without progress; `None` is for ever.
fn progress_limit(observed: &Observed) -> Option<Duration> {
    let desired = observed.desired.as_ref().ok()?;
    let seconds = desired.spec.timeout_in_force().progress?;
    Some(Duration::from_secs(seconds.into()))
}

/// FW-26: a change of the spec or of the number of ready pods begins anew.
fn progressing_since(observed: &Observed, ensured: &Ensured, now: Timestamp) -> Timestamp {
    let previous = &observed.previous;
    let ready = ensured.workload.as_ref().map(|workload| workload.ready);
    let same = previous.observed_generation == Some(observed.actor.generation)
        && previous.ready_replicas == ready;
    let since = previous.progressing_since.as_ref().filter(|_| same);
    since.map_or(now, |since| since.0)
}

/// Everything but STATUS and the conditions.
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

/// An object of the actor's name.
fn reference(observed: &Observed, version: &str, kind: &str) -> ObjectReference {
    let Key { namespace, name } = observed.key();
    ObjectReference {
        api_version: Some(version.to_owned()),
        kind: kind.to_owned(),
        name: name.to_string(),
        namespace: Some(namespace.to_string()),
    }
}

/// QUE-20: about as many as there are.
fn messages(observed: &Observed, ensured: &Ensured) -> (Option<i64>, Option<i64>) {
    let previous = &observed.previous;
    match (observed.depth, &ensured.queue) {
        (Told::Depth(depth), _) => (count(depth.queued), count(depth.processing)),
        (Told::Nothing, _) => (None, None),
        // What is new is empty: nobody needs to ask.
        (Told::AsBefore, QueueState::Created(_)) => (Some(0), Some(0)),
        (Told::AsBefore, _) => (previous.queued_messages, previous.processing_messages),
    }
}

fn count(messages: u64) -> Option<i64> {
    i64::try_from(messages).ok()
}

fn conditions(
    observed: &Observed,
    ensured: &Ensured,
    transport_fault: Option<&Fault>,
    (verdict, scaling): (&Verdict, Option<&ScalingReady>),
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

/// `readySummary` and `transportStatus` are read off the conditions (STA-10).
fn summarize_conditions(status: &mut AsyncActorStatus, expected: &[&str]) {
    let find = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
    let is_true = |kind: &str| find(kind).is_some_and(|c| c.status == "True");
    let ready = expected.iter().filter(|kind| is_true(kind)).count();
    let summary = format!("{ready}/{}", expected.len());
    let transport = is_true(TRANSPORT_READY);
    status.ready_summary = Some(summary);
    status.transport_status = Some(if transport { "Ready" } else { "NotReady" }.to_owned());
}

#[cfg(test)]
mod tests;
