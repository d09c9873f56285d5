//! Condition `Injected` of a binding.

use asya_shared::admission::{MAX_REQUIRED, Unenforced};
use asya_shared::api::{BindingStrategy, InjectionStatus, PodCounts};
use asya_shared::inject::bound::missing::is_fixed_by_replacement;
use asya_shared::inject::bound::{InjectionReason, ProbeResult};

use crate::binding::unenforced_required::Enforcement;
use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::Reason;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::condition_types::INJECTED;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{BindingOutcome, RolloutOutcome, TemplateOutcome};
use crate::reconcile::model::target_pods::{TargetPodCounts, actor_hash};
use crate::telemetry::events::{EventReason, NewEvent};

const OPTED_OUT: &str = InjectionReason::OptedOut.as_str();
const SPEC_CONFLICT: &str = InjectionReason::SpecConflict.as_str();

/// Injection into the target's pods, as reported.
pub(super) struct InjectedReport {
    /// Condition `Injected`; `None` leaves it unchanged.
    pub(super) condition: Option<ConditionValue>,
    /// The Event of a required binding that is not enforced, recorded once.
    pub(super) event: Option<NewEvent>,
}

pub(super) fn injected_report(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    counted: Option<&TargetPodCounts>,
    injection: Option<&InjectionStatus>,
    is_bound: bool,
) -> InjectedReport {
    let fail_open_text = fail_open_message(observed, binding);
    let new = fail_open_text.as_ref();
    let new = new.filter(|text| !was_reported(observed, text));
    InjectedReport {
        event: new.map(|text| NewEvent::new(EventReason::RequiredNotEnforced, text)),
        condition: injected_condition(
            observed,
            outcome,
            counted,
            injection,
            fail_open_text,
            is_bound,
        ),
    }
}

fn injected_condition(
    observed: &Observed,
    outcome: &BindingOutcome,
    counted: Option<&TargetPodCounts>,
    injection: Option<&InjectionStatus>,
    fail_open_text: Option<String>,
    is_bound: bool,
) -> Option<ConditionValue> {
    if observed.desired.is_err() {
        let text = "the target's pods are not observed while the spec or the transport is unusable; new ones start \
                    without the sidecar";
        return Some(ConditionValue::new(
            ConditionStatus::Unknown,
            Reason::NotProven,
            text,
        ));
    }
    let bound = observed.desired_binding()?;
    if !is_bound {
        let text = "pods get the sidecar once the queue and the runtime script exist and the target can be bound";
        return Some(ConditionValue::new(
            ConditionStatus::Unknown,
            Reason::NotProven,
            text,
        ));
    }
    let Some(counted) = counted else {
        let known = observed
            .previous
            .conditions
            .iter()
            .any(|c| c.type_ == INJECTED);
        let text = "the target's pods have not been listed yet";
        return (!known)
            .then(|| ConditionValue::new(ConditionStatus::Unknown, Reason::NotProven, text));
    };
    if let Some(text) = url_unknown(observed) {
        return Some(ConditionValue::new(false, Reason::TargetURLUnknown, text));
    }
    let by_template = bound.strategy == BindingStrategy::Template;
    let decided = match rejection_message(observed, injection) {
        _ if by_template => injected_by_template(outcome, counted),
        Some(text) => Some(ConditionValue::new(false, Reason::ProbeRejected, text)),
        None => injected_by_pods(observed, outcome, counted),
    };
    let condition = decided.unwrap_or_else(|| injected_by_counts(&counted.pods));
    let is_injected = condition.is_true();
    match fail_open_text {
        Some(text) if is_injected && !by_template => {
            Some(ConditionValue::new(false, Reason::WebhookNotReady, text))
        }
        _ => Some(condition),
    }
}

/// Explains what happens to new pods while the API server rejects those with the sidecar (SAFE-1).
fn rejection_message(observed: &Observed, injection: Option<&InjectionStatus>) -> Option<String> {
    let bound = observed.desired_binding()?;
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

/// Condition `Injected` by the rollout; `None` if the counts of the pods decide.
fn injected_by_pods(
    observed: &Observed,
    outcome: &BindingOutcome,
    counted: &TargetPodCounts,
) -> Option<ConditionValue> {
    let without_pods = counted.pods.matched == 0;
    let known = |status: bool, reason, text: &str| Some(ConditionValue::new(status, reason, text));
    match &outcome.rollout {
        RolloutOutcome::Waiting(fault) => known(false, fault.reason, &fault.message),
        RolloutOutcome::Requested(_) => {
            let text = RolloutOutcome::IN_PROGRESS_MESSAGE;
            known(false, Reason::RolloutInProgress, text)
        }
        RolloutOutcome::Halted(text) | RolloutOutcome::Stalled(text) => {
            known(false, Reason::RolloutHalted, text)
        }
        RolloutOutcome::NotChecked if without_pods && !observed.is_injection_verified() => None,
        RolloutOutcome::NotChecked | RolloutOutcome::NoPodsYet | RolloutOutcome::NotNeeded
            if without_pods =>
        {
            let text =
                "the target has no pods, and a dry run has shown that new ones get the sidecar";
            known(true, Reason::ScaledToZero, text)
        }
        RolloutOutcome::Conflict(_) => {
            let text = RolloutOutcome::CONFLICT_MESSAGE;
            known(false, Reason::RolloutWaiting, text)
        }
        RolloutOutcome::NotChecked
        | RolloutOutcome::NotNeeded
        | RolloutOutcome::NoPodsYet
        | RolloutOutcome::Yielded => None,
    }
}

/// Why pods of a required binding may start without the sidecar: its webhook entry fails open (CFG-7). While that is
/// not known yet, what was reported before.
fn fail_open_message(observed: &Observed, binding: &ObservedBinding) -> Option<String> {
    if !observed.desired_binding()?.required {
        return None;
    }
    let enforcement = binding.injection().map(|it| it.enforcement);
    match enforcement.unwrap_or_default() {
        Enforcement::Possible => None,
        Enforcement::Impossible(reason) => Some(unenforced_message(reason)),
        Enforcement::Unknown => [Unenforced::NoRoom, Unenforced::SelectorTooLarge]
            .map(unenforced_message)
            .into_iter()
            .find(|text| was_reported(observed, text)),
    }
}

fn unenforced_message(reason: Unenforced) -> String {
    let why = match reason {
        Unenforced::NoRoom => format!(
            "there is no room for another webhook entry that fails closed (at most {MAX_REQUIRED} in the cluster), so \
             pods of this one may start without the sidecar; set it to false in an older binding of this namespace, \
             if there is one that can do without, or here"
        ),
        Unenforced::SelectorTooLarge => "the pod selector of the target's workload is too large for a webhook entry, \
             and nothing else tells its pods from others, so they may start without the sidecar; give the workload a \
             selector of less than 4 KiB, or set spec.binding.required to false"
            .to_owned(),
    };
    format!("spec.binding.required: {why}")
}

fn was_reported(observed: &Observed, text: &str) -> bool {
    let mut previous = observed.previous.conditions.iter();
    previous.any(|condition| condition.type_ == INJECTED && condition.message == text)
}

/// With strategy Template, pods get the sidecar from their template, as their controller replaces them (BIND-50);
/// `None` if the counts of the pods decide.
fn injected_by_template(
    outcome: &BindingOutcome,
    counted: &TargetPodCounts,
) -> Option<ConditionValue> {
    let not_injected = |reason, text: &str| Some(ConditionValue::new(false, reason, text));
    match &outcome.template {
        TemplateOutcome::Waiting(fault)
        | TemplateOutcome::Refused(fault)
        | TemplateOutcome::GivenUp(Some(fault)) => not_injected(fault.reason, &fault.message),
        TemplateOutcome::Conflict(_) => {
            not_injected(Reason::RolloutWaiting, TemplateOutcome::CONFLICT_MESSAGE)
        }
        TemplateOutcome::Unchanged | TemplateOutcome::Applied(_) if counted.pods.matched == 0 => {
            let text = "the target has no pods, and its pod template has the sidecar";
            Some(ConditionValue::new(true, Reason::ScaledToZero, text))
        }
        TemplateOutcome::Unchanged | TemplateOutcome::Applied(_)
            if !counted.outdated.is_empty() =>
        {
            let text = "the target's pod template has the sidecar, and its controller is replacing the pods without \
             it";
            not_injected(Reason::RolloutInProgress, text)
        }
        TemplateOutcome::Unchanged
        | TemplateOutcome::Applied(_)
        | TemplateOutcome::Yielded
        | TemplateOutcome::GivenUp(None)
        | TemplateOutcome::NotDesired
        | TemplateOutcome::NotChecked => None,
    }
}

/// The runtime cannot call the model without its URL (BIND-23).
fn url_unknown(observed: &Observed) -> Option<String> {
    let bound = observed.desired_binding()?;
    let resolved = observed.resolved()?;
    let target = &resolved.target;
    (!bound.has_url && target.server.url.is_none()).then(|| {
        format!(
            "spec.runtime.targetURL: {} does not declare the port of the model; set targetURL, or declare the port \
             in the model's container",
            target.workload
        )
    })
}

/// Condition `Injected` where nothing but the pods says whether they get the sidecar.
fn injected_by_counts(pods: &PodCounts) -> ConditionValue {
    if pods.matched == 0 {
        let text = "the target has no pods, so it is not known whether they get the sidecar";
        return ConditionValue::new(ConditionStatus::Unknown, Reason::NotProven, text);
    }
    if pods.not_injected == 0 {
        let text = "every pod of the target has the sidecar";
        return ConditionValue::new(true, Reason::AllPodsInjected, text);
    }
    let reasons: Vec<_> = pods.reasons.iter().map(|it| &*it.reason).collect();
    let text = format!(
        "not every pod of the target has the sidecar: {}; {}",
        reasons.join(", "),
        remedy(&reasons)
    );
    let reason = if reasons.contains(&SPEC_CONFLICT) {
        Reason::SpecConflict
    } else {
        Reason::PodsNotInjected
    };
    ConditionValue::new(false, reason, text)
}

fn remedy(reasons: &[&str]) -> &'static str {
    match reasons {
        [OPTED_OUT] => "remove the label asya.sh/inject from the target's pod template",
        [SPEC_CONFLICT] => {
            "rename the container or volume that has a name reserved for Asya, or remove the label of another actor, \
             in the target's pod template; the actor's Events name it"
        }
        _ if reasons.iter().all(|reason| is_fixed_by_replacement(reason)) => {
            "status.pods lists the pods; restart those that started before the binding"
        }
        _ => "status.pods lists the pods; the actor's Events say what to change in the target",
    }
}

#[cfg(test)]
mod tests;
