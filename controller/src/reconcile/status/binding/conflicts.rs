//! Reports contention over fields (docs/spec/binding.md, section 7).

use asya_shared::api::{AsyncActorStatus, BindingConflict};
use asya_shared::resolve::FindingReason;
use k8s_openapi::jiff::Timestamp;

use crate::fault::Requeue;
use crate::reconcile::contention::Part;
use crate::reconcile::contention::history::{self, FieldEvent, part_of};
use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{By, Ensured, Rolled, Templated};
use crate::telemetry::events::EventReason;

/// Writes the contested fields, and how often each was lost.
pub(super) fn tell(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    ensured: &Ensured,
    now: Timestamp,
) {
    let uid = observed.resolved().and_then(|it| it.uid());
    let news = news(ensured);
    let base = observed.deadlines.conflict;
    let before = &observed.previous.conflicts;
    status.conflicts = match &observed.binding {
        Some(seen) if seen.is_anothers() => history::at_rest(before),
        _ => history::follow(before, uid, &news, base, now),
    };
    status.claimed = match (ensured.contests.claimed, uid) {
        (Some(is_made), uid) => uid.filter(|_| is_made).map(str::to_owned),
        (None, Some(uid)) => before_claimed(observed).filter(|it| it == uid),
        (None, None) => before_claimed(observed),
    };
    status.template = match &*ensured.templated {
        Templated::Applied(applied) => Some(applied.clone()),
        Templated::Released(_) => None,
        _ => observed.previous.template.clone(),
    };
    status.conflict_count = Some(history::count(&status.conflicts));
    status.last_conflict_time = history::last(&status.conflicts);
}

/// Keeps the recorded claim while scaling is on and the target is not another actor's.
fn before_claimed(observed: &Observed) -> Option<String> {
    let claimed = observed.previous.claimed.clone();
    let is_anothers = observed
        .binding
        .as_ref()
        .is_some_and(BindingSeen::is_anothers);
    claimed.filter(|_| observed.scales() && !is_anothers)
}

/// When to requeue because of contention.
pub(super) fn again(ensured: &Ensured) -> impl Iterator<Item = Requeue> {
    let of_others = ensured.contests.again.map(Requeue::After);
    of_template(&ensured.templated).into_iter().chain(of_others)
}

/// When to requeue for the target's pod template.
fn of_template(templated: &Templated) -> Option<Requeue> {
    match templated {
        Templated::Waits(_, _, retry) => Some(*retry),
        Templated::Lost(_) => Some(Requeue::Now),
        Templated::Untouched
        | Templated::Rest
        | Templated::Stands
        | Templated::Applied(_)
        | Templated::Released(_)
        | Templated::Refused(_)
        | Templated::Left => None,
    }
}

fn news(ensured: &Ensured) -> Vec<(Part, FieldEvent)> {
    let of_roll = match &*ensured.rolled {
        Rolled::Rest | Rolled::Proved => Some(FieldEvent::Needless),
        Rolled::Asked(By::Annotation, ..) => Some(FieldEvent::Written),
        Rolled::Lost(loss) => Some(FieldEvent::Lost(loss.clone())),
        Rolled::Untouched
        | Rolled::Waits(..)
        | Rolled::Halted(_)
        | Rolled::Stalled(_)
        | Rolled::Left
        | Rolled::Asked(By::Eviction, ..) => None,
    };
    let of_roll = of_roll.map(|news| (Part::Roll, news));
    let of_template = match &*ensured.templated {
        Templated::Applied(_) => Some(FieldEvent::Written),
        Templated::Lost(loss) => Some(FieldEvent::Lost(loss.clone())),
        Templated::Rest | Templated::Released(_) | Templated::Refused(_) => {
            Some(FieldEvent::Needless)
        }
        Templated::Untouched | Templated::Stands | Templated::Waits(..) | Templated::Left => None,
    };
    let of_template = of_template.map(|news| (Part::Template, news));
    let others = ensured.contests.news.iter().cloned();
    of_roll
        .into_iter()
        .chain(of_template)
        .chain(others)
        .collect()
}

/// Message of condition `Conflict` while it is true.
pub(super) fn message(observed: &Observed, conflicts: &[BindingConflict]) -> Option<String> {
    history::told(conflicts, evicts(observed))
}

/// Events for the losses of this reconcile.
pub(super) fn notes(
    observed: &Observed,
    conflicts: &[BindingConflict],
) -> Vec<(EventReason, String)> {
    let before = &observed.previous.conflicts;
    let told = history::losses(before, conflicts).filter_map(|entry| {
        let text = history::text(entry, part_of(entry)?, evicts(observed));
        Some((EventReason::BindingConflict, text))
    });
    told.collect()
}

fn evicts(observed: &Observed) -> bool {
    let warnings = observed.resolved().map(|it| it.target.warnings.iter());
    let mut warnings = warnings.into_iter().flatten();
    warnings.any(|it| it.reason == FindingReason::UnknownOwner)
}
