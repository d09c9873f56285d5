//! The conditions of a binding (BIND-5).

use std::time::Duration;

use asya_shared::admission::MAX_REQUIRED;
use asya_shared::api::{AsyncActorStatus, BindingStrategy, InjectionStatus};
use asya_shared::inject::bound::ProbeResult;
use asya_shared::resolve::{Finding, FindingReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use crate::fault::{Fault, Reason};
use crate::reconcile::model::binding::{ObservedBinding, Resolved};
use crate::reconcile::model::bound_pods::{TargetPodCounts, actor_hash};
use crate::reconcile::model::condition_types::CONFLICT;
use crate::reconcile::model::condition_types::{
    INJECTED, Injected, READY, SCALING_READY, TARGET_RESOLVED, TRANSPORT_READY, WORKLOAD_READY,
};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ActiveOutcome, RolloutOutcome, TemplateOutcome};
use crate::reconcile::status::conditions::Conditions;
use crate::reconcile::status::transport;
use crate::scaling::ready::ScalingReady;
use crate::telemetry::events::EventReason;

/// Condition `Injected`; `None` leaves it unchanged.
pub(super) fn injected(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &ActiveOutcome,
    (counted, injection): (Option<&TargetPodCounts>, Option<&InjectionStatus>),
    is_bound: bool,
) -> Option<Injected> {
    let bound = observed.bound()?;
    if !is_bound {
        let text = "pods get the sidecar once the queue and the runtime script exist and the target can be bound";
        return Some((None, Reason::NotProven, text.to_owned()));
    }
    let Some(counted) = counted else {
        let known = observed
            .previous
            .conditions
            .iter()
            .any(|c| c.type_ == INJECTED);
        let text = "the target's pods have not been listed yet";
        return (!known).then(|| (None, Reason::NotProven, text.to_owned()));
    };
    if let Some(text) = url_unknown(observed) {
        return Some((Some(false), Reason::TargetURLUnknown, text));
    }
    if bound.strategy == BindingStrategy::Template {
        return injected_by_template(outcome, counted);
    }
    if let Some(text) = rejection_message(observed, injection) {
        return Some((Some(false), Reason::ProbeRejected, text));
    }
    let condition = injected_by_pods(observed, outcome, counted);
    let is_injected = condition.0 == Some(true);
    match unenforced_message(observed, binding) {
        Some(text) if is_injected => Some((Some(false), Reason::WebhookNotReady, text)),
        _ => Some(condition),
    }
}

/// Explains what happens to new pods while the API server rejects those with the sidecar (SAFE-1).
fn rejection_message(observed: &Observed, injection: Option<&InjectionStatus>) -> Option<String> {
    let bound = observed.bound()?;
    let hash = actor_hash(bound.injected_hash.as_deref())?;
    let ProbeResult::Rejected(error) = ProbeResult::from_status(injection, hash) else {
        return None;
    };
    let effect = if bound.required {
        "the API server rejects pods of the target with the sidecar, and spec.binding.required lets none start \
         without it"
    } else {
        "the API server rejects pods of the target with the sidecar, so new ones start without it and no pod is \
         replaced"
    };
    Some(format!("{effect}; it answered a dry run: {error}"))
}

/// Condition `Injected` as derived from the rollout or the target's pods.
fn injected_by_pods(
    observed: &Observed,
    outcome: &ActiveOutcome,
    counted: &TargetPodCounts,
) -> Injected {
    let without_pods = counted.pods.matched == 0;
    match &*outcome.rollout {
        RolloutOutcome::Waiting(reason, text, _) => (Some(false), *reason, text.clone()),
        RolloutOutcome::Requested(_, text, _) => {
            (Some(false), Reason::RolloutInProgress, text.clone())
        }
        RolloutOutcome::Halted(text) | RolloutOutcome::Stalled(text) => {
            (Some(false), Reason::RolloutHalted, text.clone())
        }
        RolloutOutcome::NotChecked if without_pods && !observed.is_injection_verified() => {
            counted.injected_condition()
        }
        RolloutOutcome::NotChecked
        | RolloutOutcome::InjectionVerified
        | RolloutOutcome::NotNeeded
            if without_pods =>
        {
            let text =
                "the target has no pods, and a dry run has shown that new ones get the sidecar";
            (Some(true), Reason::ScaledToZero, text.to_owned())
        }
        RolloutOutcome::Conflict(_) => {
            let text = RolloutOutcome::CONFLICT_MESSAGE.to_owned();
            (Some(false), Reason::RolloutWaiting, text)
        }
        RolloutOutcome::NotChecked
        | RolloutOutcome::NotNeeded
        | RolloutOutcome::InjectionVerified
        | RolloutOutcome::Yielded => counted.injected_condition(),
    }
}

/// CFG-7
fn unenforced_message(observed: &Observed, binding: &ObservedBinding) -> Option<String> {
    let text = format!(
        "spec.binding.required: {MAX_REQUIRED} older bindings are already required, which is the maximum, so pods of \
         this one may start without the sidecar; set spec.binding.required to false here or in another actor"
    );
    let reported_before = || was_reported(observed, &text);
    let is_unenforced =
        observed.bound()?.required && binding.unenforced.unwrap_or_else(reported_before);
    is_unenforced.then_some(text)
}

fn was_reported(observed: &Observed, text: &str) -> bool {
    let mut previous = observed.previous.conditions.iter();
    previous.any(|it| it.type_ == INJECTED && it.message == text)
}

/// The Event of a required binding that is not enforced, recorded once.
pub(super) fn unenforced_event(
    observed: &Observed,
    binding: &ObservedBinding,
) -> Option<(EventReason, String)> {
    let text = unenforced_message(observed, binding)?;
    (!was_reported(observed, &text)).then_some((EventReason::RequiredNotEnforced, text))
}

/// With strategy Template, pods get the sidecar from their template, as their controller replaces them (BIND-50).
fn injected_by_template(outcome: &ActiveOutcome, counted: &TargetPodCounts) -> Option<Injected> {
    let not_injected = |reason, text: &str| Some((Some(false), reason, text.to_owned()));
    match &*outcome.template {
        TemplateOutcome::Waiting(reason, text, _) => not_injected(*reason, text),
        TemplateOutcome::Refused(fault) | TemplateOutcome::Disowned(Some(fault)) => {
            not_injected(fault.reason, &fault.message)
        }
        TemplateOutcome::Conflict(_) => {
            not_injected(Reason::RolloutWaiting, TemplateOutcome::CONFLICT_MESSAGE)
        }
        TemplateOutcome::InPlace | TemplateOutcome::Applied(_) if counted.pods.matched == 0 => {
            let text = "the target has no pods, and its pod template has the sidecar";
            Some((Some(true), Reason::ScaledToZero, text.to_owned()))
        }
        TemplateOutcome::InPlace | TemplateOutcome::Applied(_) if !counted.outdated.is_empty() => {
            let text = "the target's pod template has the sidecar, and its controller is replacing the pods without \
             it";
            not_injected(Reason::RolloutInProgress, text)
        }
        TemplateOutcome::InPlace
        | TemplateOutcome::Applied(_)
        | TemplateOutcome::Yielded
        | TemplateOutcome::Disowned(None)
        | TemplateOutcome::NotDesired
        | TemplateOutcome::NotChecked => Some(counted.injected_condition()),
    }
}

/// BIND-23
fn url_unknown(observed: &Observed) -> Option<String> {
    let (bound, resolved) = (observed.bound()?, observed.resolved()?);
    let target = &resolved.target;
    (!bound.has_url && target.server.url.is_none()).then(|| {
        format!(
            "spec.runtime.targetURL: {} does not declare the port of the model; set targetURL, or declare the port \
             in the model's container",
            target.workload
        )
    })
}

/// FW-26
pub(super) fn progress_message(status: &AsyncActorStatus, limit: Duration) -> String {
    let (ready, desired) = (status.ready_replicas, status.desired_replicas);
    format!(
        "{} of {} pods are ready with the sidecar; no further pod became ready for {} s (timeout.progress)",
        ready.unwrap_or_default(),
        desired.unwrap_or_default(),
        limit.as_secs()
    )
}

fn was_scaled(observed: &Observed) -> bool {
    let mut previous = observed.previous.conditions.iter();
    previous.any(|it| it.type_ == SCALING_READY)
}

fn had_exceeded_progress(observed: &Observed) -> bool {
    let reason = Reason::ProgressDeadlineExceeded.to_string();
    let mut previous = observed.previous.conditions.iter();
    previous.any(|it| it.type_ == WORKLOAD_READY && it.reason == reason)
}

/// All conditions of an active binding.
pub(super) fn build(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &ActiveOutcome,
    (transport_fault, workload_fault, stuck): (Option<&Fault>, Option<&Fault>, Option<String>),
    (injected, scaling): (Option<Injected>, Option<ScalingReady>),
    conflict: Option<String>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::of(observed, now);
    transport::set_condition(&mut conditions, observed, outcome, transport_fault);
    match &binding.target {
        Some(Ok(resolved)) => {
            let text =
                resolved_message(resolved, observed.bound().is_some_and(|bound| bound.scales));
            conditions.set(TARGET_RESOLVED, Some(true), Reason::Resolved, &text);
        }
        Some(Err(fault)) => {
            conditions.set(TARGET_RESOLVED, Some(false), fault.reason, &fault.message);
        }
        None => {}
    }
    if let Some((status, reason, text)) = injected {
        conditions.set(INJECTED, status, reason, &text);
    }
    match scaling {
        // The target has not been looked up yet: keep the previous condition.
        Some(_) if binding.target.is_none() => {}
        Some(it)
            if it.reason == Reason::NotProven && binding.pods.is_none() && was_scaled(observed) => {
        }
        Some(it) => conditions.set(SCALING_READY, it.ready, it.reason, &it.message),
        None if observed.desired.is_ok() => conditions.remove(SCALING_READY),
        None => {}
    }
    // For a binding, the condition exists only while it is false (BIND-6).
    match (workload_fault, stuck) {
        (Some(fault), _) => {
            conditions.set(WORKLOAD_READY, Some(false), fault.reason, &fault.message);
        }
        (None, Some(text)) => {
            let reason = Reason::ProgressDeadlineExceeded;
            conditions.set(WORKLOAD_READY, Some(false), reason, &text);
        }
        // The pods have not been listed since this process started.
        (None, None) if binding.pods.is_none() && had_exceeded_progress(observed) => {}
        (None, None) => conditions.remove(WORKLOAD_READY),
    }
    if let Some(text) = conflict {
        conditions.set(CONFLICT, Some(true), Reason::BindingConflict, &text);
    } else {
        let text = "no other field manager reverts what the operator writes";
        conditions.set(CONFLICT, Some(false), Reason::NoConflict, text);
    }
    let needed = [TRANSPORT_READY, TARGET_RESOLVED, INJECTED];
    let optional = [WORKLOAD_READY, SCALING_READY];
    conditions.set_ready(&needed, &optional, observed.actor.annotations.paused);
    // Ready comes last, as for standalone actors.
    conditions
        .list
        .sort_by_key(|condition| condition.type_ == READY);
    conditions.list
}

/// Names the workload, and what users should know about it (RES-4).
fn resolved_message(resolved: &Resolved, scales: bool) -> String {
    let target = &resolved.target;
    let is_relevant = |it: &&Finding| scales || it.reason != FindingReason::ScalingCaveat;
    let warnings = target.warnings.iter().filter(is_relevant);
    let warnings = warnings.map(|warning| &*warning.message);
    let all = [format!("bound to {}", target.workload)];
    let all = all.iter().map(String::as_str).chain(warnings);
    all.collect::<Vec<_>>().join("; ")
}
