//! Reports contention over the fields of a binding (docs/spec/binding.md, section 7): status, condition `Conflict` and
//! Events. `../drift.rs` reports the drift of a standalone actor's objects.

use asya_shared::api::{AsyncActorStatus, TemplateStatus};
use asya_shared::resolve::CaveatReason;
use k8s_openapi::jiff::Timestamp;

use crate::fault::Requeue;
use crate::reconcile::contention::ContestedPart;
use crate::reconcile::contention::history::{self, FieldEvent, part_of};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{
    BindingOutcome, HandoffChange, ReplacementMethod, RolloutOutcome, TemplateOutcome,
};
use crate::reconcile::status::common::ConflictFields;
use crate::telemetry::events::{EventReason, NewEvent};

/// Contested fields, as reported.
pub(super) struct ConflictReport {
    pub(super) fields: BindingConflictFields,
    /// Message of condition `Conflict` while it is true.
    pub(super) message: Option<String>,
    pub(super) requeues: Vec<Requeue>,
    pub(super) events: Vec<NewEvent>,
}

/// The fields of the status about contested fields, and about what we wrote into them.
pub(super) struct BindingConflictFields {
    template: Option<TemplateStatus>,
    handoff_uid: Option<String>,
    conflicts: ConflictFields,
}

impl BindingConflictFields {
    pub(super) fn write_into(self, status: &mut AsyncActorStatus) {
        status.template = self.template;
        status.handoff_uid = self.handoff_uid;
        self.conflicts.write_into(status);
    }
}

/// Reports the contested fields, and the number of conflicts over each.
pub(super) fn conflict_report(
    observed: &Observed,
    outcome: &BindingOutcome,
    now: Timestamp,
) -> ConflictReport {
    let uid = observed.resolved().and_then(|it| it.uid());
    let evicts_pods = evicts_pods(observed);
    let template = match &outcome.template {
        TemplateOutcome::Applied(applied) => Some(applied.clone()),
        TemplateOutcome::GivenUp(_) => None,
        _ => observed.previous.template.clone(),
    };
    let previous_handoff = previous_handoff(observed);
    let handoff_uid = match (outcome.contention.handoff, uid) {
        (Some(HandoffChange::Set), uid) => uid.map(str::to_owned),
        (Some(HandoffChange::Remove), _) => None,
        (None, Some(uid)) => previous_handoff.filter(|handoff| handoff == uid),
        (None, None) => previous_handoff,
    };
    let field_events = field_events(outcome);
    let base = observed.deadlines.conflict_backoff;
    let previous = &observed.previous.conflicts;
    let conflicts = match &observed.binding {
        Some(binding) if binding.is_bound_by_other() => history::reset_all(previous),
        _ => history::update(previous, uid, &field_events, base, now),
    };
    let events = history::new_conflicts(previous, &conflicts).filter_map(|entry| {
        let text = history::entry_message(entry, part_of(entry)?, evicts_pods);
        Some(NewEvent::new(EventReason::BindingConflict, text))
    });
    ConflictReport {
        message: history::conflict_message(&conflicts, evicts_pods),
        requeues: requeues(outcome).collect(),
        events: events.collect(),
        fields: BindingConflictFields {
            template,
            handoff_uid,
            conflicts: ConflictFields {
                count: Some(history::total_conflicts(&conflicts)),
                last_time: history::last_conflict_time(&conflicts),
                conflicts,
            },
        },
    }
}

/// Keeps the recorded handoff unless scaling is off, or another actor binds the target. A spec that cannot be acted
/// upon for now says neither: the annotation is still set, and nothing would record it again.
fn previous_handoff(observed: &Observed) -> Option<String> {
    let handoff = observed.previous.handoff_uid.clone();
    let is_bound_by_other = observed
        .binding
        .as_ref()
        .is_some_and(ObservedBinding::is_bound_by_other);
    let may_scale = observed.scales() || observed.desired.is_err();
    handoff.filter(|_| may_scale && !is_bound_by_other)
}

/// When to requeue because of contention.
fn requeues(outcome: &BindingOutcome) -> impl Iterator<Item = Requeue> {
    let recheck = outcome.contention.recheck_after.map(Requeue::After);
    template_requeue(&outcome.template)
        .into_iter()
        .chain(recheck)
}

/// When to requeue for the target's pod template.
fn template_requeue(outcome: &TemplateOutcome) -> Option<Requeue> {
    match outcome {
        TemplateOutcome::Waiting(fault) => Some(fault.requeue),
        TemplateOutcome::Conflict(_) => Some(Requeue::Now),
        TemplateOutcome::NotChecked
        | TemplateOutcome::NotDesired
        | TemplateOutcome::Unchanged
        | TemplateOutcome::Applied(_)
        | TemplateOutcome::GivenUp(_)
        | TemplateOutcome::Refused(_)
        | TemplateOutcome::Yielded => None,
    }
}

fn field_events(outcome: &BindingOutcome) -> Vec<(ContestedPart, FieldEvent)> {
    let roll_event = match &outcome.rollout {
        RolloutOutcome::NotNeeded | RolloutOutcome::NoPodsYet => Some(FieldEvent::Reset),
        RolloutOutcome::Requested(ReplacementMethod::Annotation) => Some(FieldEvent::Written),
        RolloutOutcome::Conflict(conflict) => Some(FieldEvent::Conflict(conflict.clone())),
        RolloutOutcome::NotChecked
        | RolloutOutcome::Waiting(_)
        | RolloutOutcome::Halted(_)
        | RolloutOutcome::Stalled(_)
        | RolloutOutcome::Yielded
        | RolloutOutcome::Requested(ReplacementMethod::Eviction) => None,
    };
    let roll_event = roll_event.map(|event| (ContestedPart::Roll, event));
    let template_event = match &outcome.template {
        TemplateOutcome::Applied(_) => Some(FieldEvent::Written),
        TemplateOutcome::Conflict(conflict) => Some(FieldEvent::Conflict(conflict.clone())),
        TemplateOutcome::NotDesired | TemplateOutcome::GivenUp(_) | TemplateOutcome::Refused(_) => {
            Some(FieldEvent::Reset)
        }
        TemplateOutcome::NotChecked
        | TemplateOutcome::Unchanged
        | TemplateOutcome::Waiting(_)
        | TemplateOutcome::Yielded => None,
    };
    let template_event = template_event.map(|event| (ContestedPart::Template, event));
    let others = outcome.contention.field_events.iter().cloned();
    roll_event
        .into_iter()
        .chain(template_event)
        .chain(others)
        .collect()
}

fn evicts_pods(observed: &Observed) -> bool {
    let warnings = observed.resolved().map(|it| it.target.warnings.iter());
    let mut warnings = warnings.into_iter().flatten();
    warnings.any(|warning| warning.reason == CaveatReason::UnknownOwner)
}
