//! The conditions of a binding (BIND-5).

use std::time::Duration;

use asya_shared::admission::MOST_REQUIRED;
use asya_shared::api::{AsyncActorStatus, BindingStrategy, InjectionStatus};
use asya_shared::inject::bound::Gate;
use asya_shared::resolve::{Finding, FindingReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use crate::fault::{Fault, Reason};
use crate::reconcile::model::binding::{BindingSeen, Resolved};
use crate::reconcile::model::bound_pods::{Counted, actor_part};
use crate::reconcile::model::condition_types::CONFLICT;
use crate::reconcile::model::condition_types::{
    INJECTED, Injected, READY, SCALING_READY, TARGET_RESOLVED, TRANSPORT_READY, WORKLOAD_READY,
};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, Rolled, Templated};
use crate::reconcile::plan::roll::TAKEN_BACK;
use crate::reconcile::plan::template;
use crate::reconcile::status::conditions::Conditions;
use crate::reconcile::status::transport;
use crate::scaling::ready::ScalingReady;
use crate::telemetry::events::EventReason;

/// Condition `Injected`; `None` leaves it unchanged.
pub(super) fn injected(
    observed: &Observed,
    seen: &BindingSeen,
    ensured: &Ensured,
    (counted, injection): (Option<&Counted>, Option<&InjectionStatus>),
    is_bound: bool,
) -> Option<Injected> {
    let bound = observed.bound()?;
    if !is_bound {
        let text = "no pod gets the sidecar before the queue and the runtime script are there and the target may be bound";
        return Some((None, Reason::NotProven, text.to_owned()));
    }
    let Some(counted) = counted else {
        let known = observed
            .previous
            .conditions
            .iter()
            .any(|c| c.type_ == INJECTED);
        let text = "pods have not been looked at yet";
        return (!known).then(|| (None, Reason::NotProven, text.to_owned()));
    };
    if let Some(text) = url_unknown(observed) {
        return Some((Some(false), Reason::TargetURLUnknown, text));
    }
    if bound.strategy == BindingStrategy::Template {
        return of_template(ensured, counted);
    }
    if let Some(text) = refused(observed, injection) {
        return Some((Some(false), Reason::ProbeRejected, text));
    }
    let told = by_pods(observed, ensured, counted);
    let is_good = told.0 == Some(true);
    match not_enforced(observed, seen) {
        Some(text) if is_good => Some((Some(false), Reason::WebhookNotReady, text)),
        _ => Some(told),
    }
}

/// Explains what becomes of new pods while the API server refuses those with the sidecar (SAFE-1).
fn refused(observed: &Observed, injection: Option<&InjectionStatus>) -> Option<String> {
    let bound = observed.bound()?;
    let part = actor_part(bound.injected_hash.as_deref())?;
    let Gate::Refused(why) = Gate::of(injection, part) else {
        return None;
    };
    let follows = if bound.required {
        "the API server refuses pods of the target with the sidecar, and spec.binding.required lets none start without it"
    } else {
        "the API server refuses pods of the target with the sidecar, so new ones start without it and no pod is replaced"
    };
    Some(format!("{follows}: a dry run of one was answered: {why}"))
}

/// Condition `Injected` as derived from the rollout or the target's pods.
fn by_pods(observed: &Observed, ensured: &Ensured, counted: &Counted) -> Injected {
    let without_pods = counted.pods.matched == 0;
    match &*ensured.rolled {
        Rolled::Waits(reason, text, _) => (Some(false), *reason, text.clone()),
        Rolled::Asked(_, text, _) => (Some(false), Reason::RolloutInProgress, text.clone()),
        Rolled::Halted(text) | Rolled::Stalled(text) => {
            (Some(false), Reason::RolloutHalted, text.clone())
        }
        Rolled::Untouched if without_pods && !observed.proved() => counted.injected(),
        Rolled::Untouched | Rolled::Proved | Rolled::Rest if without_pods => {
            let text =
                "the target has no pods, and a dry run has shown that new ones get the sidecar";
            (Some(true), Reason::ScaledToZero, text.to_owned())
        }
        Rolled::Lost(_) => {
            let text = TAKEN_BACK.to_owned();
            (Some(false), Reason::RolloutWaiting, text)
        }
        Rolled::Untouched | Rolled::Rest | Rolled::Proved | Rolled::Left => counted.injected(),
    }
}

/// CFG-7
fn not_enforced(observed: &Observed, seen: &BindingSeen) -> Option<String> {
    let text = format!(
        "spec.binding.required: {MOST_REQUIRED} older bindings are required, which is the most, so pods of this one may start without the sidecar; give up spec.binding.required here or in another actor"
    );
    let was = || was_told(observed, &text);
    let is_so = observed.bound()?.required && seen.not_enforced.unwrap_or_else(was);
    is_so.then_some(text)
}

fn was_told(observed: &Observed, text: &str) -> bool {
    let mut before = observed.previous.conditions.iter();
    before.any(|it| it.type_ == INJECTED && it.message == text)
}

/// The Event of a required binding that is not enforced, recorded once.
pub(super) fn note(observed: &Observed, seen: &BindingSeen) -> Option<(EventReason, String)> {
    let text = not_enforced(observed, seen)?;
    (!was_told(observed, &text)).then_some((EventReason::RequiredNotEnforced, text))
}

/// With strategy Template, pods get the sidecar from their template, as their controller replaces them (BIND-50).
fn of_template(ensured: &Ensured, counted: &Counted) -> Option<Injected> {
    let wrong = |reason, text: &str| Some((Some(false), reason, text.to_owned()));
    match &*ensured.templated {
        Templated::Waits(reason, text, _) => wrong(*reason, text),
        Templated::Refused(fault) | Templated::Released(Some(fault)) => {
            wrong(fault.reason, &fault.message)
        }
        Templated::Lost(_) => wrong(Reason::RolloutWaiting, template::TAKEN_BACK),
        Templated::Stands | Templated::Applied(_) if counted.pods.matched == 0 => {
            let text = "the target has no pods, and its pod template has the sidecar";
            Some((Some(true), Reason::ScaledToZero, text.to_owned()))
        }
        Templated::Stands | Templated::Applied(_) if !counted.lacking.is_empty() => {
            let text = "the target's pod template has the sidecar, and its controller replaces the pods that have none";
            wrong(Reason::RolloutInProgress, text)
        }
        Templated::Stands
        | Templated::Applied(_)
        | Templated::Left
        | Templated::Released(None)
        | Templated::Rest
        | Templated::Untouched => Some(counted.injected()),
    }
}

/// BIND-23
fn url_unknown(observed: &Observed) -> Option<String> {
    let (bound, resolved) = (observed.bound()?, observed.resolved()?);
    let target = &resolved.target;
    (!bound.has_url && target.server.url.is_none()).then(|| {
        format!(
            "spec.runtime.targetURL: {} does not say on which port the model answers; set it, or declare the port in its container",
            target.workload
        )
    })
}

/// FW-26
pub(super) fn stuck(status: &AsyncActorStatus, limit: Duration) -> String {
    let (ready, desired) = (status.ready_replicas, status.desired_replicas);
    format!(
        "{} of {} pods are ready with the sidecar; none became ready for {} s (timeout.progress)",
        ready.unwrap_or_default(),
        desired.unwrap_or_default(),
        limit.as_secs()
    )
}

fn was_scaled(observed: &Observed) -> bool {
    let mut before = observed.previous.conditions.iter();
    before.any(|it| it.type_ == SCALING_READY)
}

fn was_stuck(observed: &Observed) -> bool {
    let reason = Reason::ProgressDeadlineExceeded.to_string();
    let mut before = observed.previous.conditions.iter();
    before.any(|it| it.type_ == WORKLOAD_READY && it.reason == reason)
}

/// All conditions of a live binding.
pub(super) fn all(
    observed: &Observed,
    seen: &BindingSeen,
    ensured: &Ensured,
    (transport_fault, refused, stuck): (Option<&Fault>, Option<&Fault>, Option<String>),
    (injected, scaling): (Option<Injected>, Option<ScalingReady>),
    conflict: Option<String>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::of(observed, now);
    transport::tell(&mut conditions, observed, ensured, transport_fault);
    match &seen.target {
        Some(Ok(resolved)) => {
            let text = told_of(resolved, observed.bound().is_some_and(|bound| bound.scales));
            conditions.set(TARGET_RESOLVED, Some(true), Reason::Resolved, &text);
        }
        Some(Err(fault)) => {
            conditions.set(TARGET_RESOLVED, Some(false), fault.reason, &fault.message);
        }
        None => {}
    }
    if let Some((is_so, reason, text)) = injected {
        conditions.set(INJECTED, is_so, reason, &text);
    }
    match scaling {
        // The target has not been looked up yet: keep the previous condition.
        Some(_) if seen.target.is_none() => {}
        Some(it)
            if it.reason == Reason::NotProven && seen.pods.is_none() && was_scaled(observed) => {}
        Some(it) => conditions.set(SCALING_READY, it.ready, it.reason, &it.message),
        None if observed.desired.is_ok() => conditions.remove(SCALING_READY),
        None => {}
    }
    // For a binding, the condition exists only while it is false (BIND-6).
    match (refused, stuck) {
        (Some(fault), _) => {
            conditions.set(WORKLOAD_READY, Some(false), fault.reason, &fault.message);
        }
        (None, Some(text)) => {
            let reason = Reason::ProgressDeadlineExceeded;
            conditions.set(WORKLOAD_READY, Some(false), reason, &text);
        }
        // The pods have not been listed since this process started.
        (None, None) if seen.pods.is_none() && was_stuck(observed) => {}
        (None, None) => conditions.remove(WORKLOAD_READY),
    }
    if let Some(text) = conflict {
        conditions.set(CONFLICT, Some(true), Reason::BindingConflict, &text);
    } else {
        let text = "nothing takes back what the operator writes";
        conditions.set(CONFLICT, Some(false), Reason::NoConflict, text);
    }
    let needed = [TRANSPORT_READY, TARGET_RESOLVED, INJECTED];
    let also = [WORKLOAD_READY, SCALING_READY];
    conditions.set_ready(&needed, &also, observed.actor.annotations.paused);
    // Ready comes last, as for standalone actors.
    conditions
        .list
        .sort_by_key(|condition| condition.type_ == READY);
    conditions.list
}

/// Names the workload, and what users should know about it (RES-4).
fn told_of(resolved: &Resolved, scales: bool) -> String {
    let target = &resolved.target;
    let told = |it: &&Finding| scales || it.reason != FindingReason::ScalingCaveat;
    let warnings = target.warnings.iter().filter(told);
    let warnings = warnings.map(|warning| &*warning.message);
    let all = [format!("bound to {}", target.workload)];
    let all = all.iter().map(String::as_str).chain(warnings);
    all.collect::<Vec<_>>().join("; ")
}
