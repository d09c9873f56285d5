//! The conditions of a binding (BIND-5).

use std::time::Duration;

use asya_shared::api::AsyncActorStatus;
use asya_shared::resolve::{Caveat, CaveatReason};

use crate::condition::ConditionValue;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::binding::{ObservedBinding, Resolved};
use crate::reconcile::model::condition_types::{
    CONFLICT, INJECTED, SCALING_READY, TARGET_RESOLVED, TRANSPORT_READY, WORKLOAD_READY,
};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::status::conditions::{ConditionChange, ConditionReport, ReadyRule};
use crate::reconcile::status::state::reason_of;
use crate::record::ProblemClass;
use crate::scaling::ready::ScalingReady;

/// Results of the earlier steps of a report.
pub(super) struct ConditionInputs<'a> {
    /// Condition `Injected`; `None` leaves it unchanged.
    pub(super) injected: Option<ConditionValue>,
    /// Condition `ScalingReady`, while the queue decides the number of pods.
    pub(super) scaling: Option<ScalingReady>,
    /// An invalid spec, or a failed write.
    pub(super) workload_fault: Option<&'a Fault>,
    /// Condition `WorkloadReady` while the runtime or the sidecar of pods fails.
    pub(super) failure: Option<ConditionValue>,
    /// The progress limit that a change has exceeded (FW-26).
    pub(super) exceeded_limit: Option<Duration>,
    /// Message of condition `Conflict` while it is true.
    pub(super) conflict: Option<String>,
}

/// All conditions but `TransportReady`; `status` has the numbers of pods.
pub(super) fn binding_conditions(
    observed: &Observed,
    binding: &ObservedBinding,
    inputs: ConditionInputs<'_>,
    status: &AsyncActorStatus,
) -> ConditionReport {
    let stuck = inputs.exceeded_limit.map(|limit| {
        let text = progress_message(status, limit);
        ConditionValue::new(false, Reason::ProgressDeadlineExceeded, text)
    });
    let unready = inputs.workload_fault.map(ConditionValue::from);
    let unready = unready.or(inputs.failure).or(stuck);
    let injected = inputs.injected;
    let changes = [
        target_resolved(observed, binding),
        injected.map(|value| ConditionChange::Set(INJECTED, value)),
        scaling_ready(observed, binding, inputs.scaling),
        workload_ready(observed, binding, unready),
    ];
    ConditionReport {
        changes: changes.into_iter().flatten().collect(),
        ready: ReadyRule {
            needed: &[TRANSPORT_READY, TARGET_RESOLVED, INJECTED],
            optional: &[WORKLOAD_READY, SCALING_READY],
            expects_scaling: false,
            is_last: true,
        },
        conflict: ConditionChange::Set(CONFLICT, conflict(inputs.conflict)),
    }
}

fn conflict(message: Option<String>) -> ConditionValue {
    match message {
        Some(message) => ConditionValue::new(true, Reason::BindingConflict, message),
        None => ConditionValue::new(
            false,
            Reason::NoConflict,
            "no other field manager reverts what the operator writes",
        ),
    }
}

fn target_resolved(observed: &Observed, binding: &ObservedBinding) -> Option<ConditionChange> {
    let value = match binding {
        ObservedBinding::Resolved(resolved) => {
            let scales = observed.desired_binding().is_some_and(|bound| bound.scales);
            let text = resolved_message(&resolved.target, scales);
            ConditionValue::new(true, Reason::Resolved, text)
        }
        ObservedBinding::Refused(refused) => (&refused.fault).into(),
        ObservedBinding::Unknown | ObservedBinding::Unbinding(_) => return None,
    };
    Some(ConditionChange::Set(TARGET_RESOLVED, value))
}

fn scaling_ready(
    observed: &Observed,
    binding: &ObservedBinding,
    scaling: Option<ScalingReady>,
) -> Option<ConditionChange> {
    match scaling {
        // The target has not been looked up yet: keep the previous condition.
        Some(_) if binding.injection().is_none() => None,
        Some(it)
            if it.condition.reason == Reason::NotProven
                && binding.pods().is_none()
                && was_scaled(observed) =>
        {
            None
        }
        Some(it) => Some(ConditionChange::Set(SCALING_READY, it.condition)),
        None if observed.desired.is_ok() => Some(ConditionChange::Remove(SCALING_READY)),
        None => None,
    }
}

/// For a binding, the condition exists only while it is false (BIND-6).
fn workload_ready(
    observed: &Observed,
    binding: &ObservedBinding,
    unready: Option<ConditionValue>,
) -> Option<ConditionChange> {
    match unready {
        Some(value) => Some(ConditionChange::Set(WORKLOAD_READY, value)),
        // The pods have not been listed since this process started.
        None if binding.pods().is_none() && was_about_pods(observed) => None,
        None => Some(ConditionChange::Remove(WORKLOAD_READY)),
    }
}

/// The message once the progress deadline is exceeded (FW-26).
fn progress_message(status: &AsyncActorStatus, limit: Duration) -> String {
    let ready = status.ready_replicas;
    let desired = status.desired_replicas;
    format!(
        "{} of {} pods are ready with the sidecar; no further pod became ready for {} s (timeout.progress)",
        ready.unwrap_or_default(),
        desired.unwrap_or_default(),
        limit.as_secs()
    )
}

fn was_scaled(observed: &Observed) -> bool {
    let mut previous = observed.previous.conditions.iter();
    previous.any(|condition| condition.type_ == SCALING_READY)
}

/// Whether the previous condition was about the target's pods.
fn was_about_pods(observed: &Observed) -> bool {
    let mut reasons = vec![Reason::ProgressDeadlineExceeded];
    reasons.extend(ProblemClass::ALL.map(reason_of));
    let mut previous = observed.previous.conditions.iter();
    previous.any(|condition| {
        condition.type_ == WORKLOAD_READY
            && reasons
                .iter()
                .any(|reason| condition.reason == reason.to_string())
    })
}

/// Names the workload, and what users should know about it (RES-4).
fn resolved_message(resolved: &Resolved, scales: bool) -> String {
    let target = &resolved.target;
    let is_relevant = |finding: &&Caveat| scales || finding.reason != CaveatReason::ScalingCaveat;
    let warnings = target.warnings.iter().filter(is_relevant);
    let warnings = warnings.map(|warning| &*warning.message);
    let all = [format!("bound to {}", target.workload)];
    let all = all.iter().map(String::as_str).chain(warnings);
    all.collect::<Vec<_>>().join("; ")
}
