//! All objects that we created for an actor (FW-25).

use asya_shared::api::InventoryEntry;

use crate::reconcile::model::child::{APPLIED, Child};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Ensured;
use crate::record::WorkloadRecord;

const DELETING: &str = "Deleting";

/// Builds the inventory from the responses to applies, never from watches, where a write of another manager would pass
/// for ours.
pub(super) fn inventory(observed: &Observed, ensured: &Ensured) -> Vec<InventoryEntry> {
    let mut entries = observed.previous.inventory.clone();
    let wanted = ensured.workload.as_deref();
    let workloads = Workloads {
        wanted,
        // Not deleted before the wanted workload exists (WRK-6).
        former_goes: wanted.is_some(),
        // A lost workload is recreated without waiting for its queue (QUE-4).
        lost_counts: wanted.is_none(),
    };
    follow(&mut entries, |entry| standing(observed, &workloads, entry));
    let stopped = ensured.stopped.iter().flat_map(|stopped| &stopped.kinds);
    for kind in stopped {
        for entry in entries.iter_mut().filter(|entry| entry.kind == *kind) {
            (entry.hash, entry.fingerprint) = (None, None);
        }
    }
    for applied in &ensured.applied {
        let same = |entry: &&mut InventoryEntry| {
            (&entry.group, &entry.kind, &entry.name)
                == (&applied.group, &applied.kind, &applied.name)
        };
        match entries.iter_mut().find(same) {
            Some(entry) => entry.clone_from(applied),
            None => entries.push(applied.clone()),
        }
    }
    entries.sort_by(|one, other| (&one.kind, &one.name).cmp(&(&other.kind, &other.name)));
    entries
}

/// Builds the inventory of an actor being deleted, after a reconcile that deleted the objects of these kinds; the
/// others are deleted in their turn.
pub(super) fn of_deletion(observed: &Observed, deleted: &[&str]) -> Vec<InventoryEntry> {
    let mut entries = observed.previous.inventory.clone();
    let former = observed.former.as_ref();
    let workloads = Workloads {
        wanted: observed.workload.ours().map(|workload| &**workload),
        former_goes: former.is_some_and(|former| former.metadata.deleting),
        lost_counts: false,
    };
    follow(&mut entries, |entry| {
        match standing(observed, &workloads, entry) {
            Standing::Stands if deleted.contains(&&*entry.kind) => Standing::Goes,
            standing => standing,
        }
    });
    entries
}

/// Updates the phase of each entry, and drops the entries of deleted objects.
fn follow(
    entries: &mut Vec<InventoryEntry>,
    mut standing: impl FnMut(&InventoryEntry) -> Standing,
) {
    entries.retain_mut(|entry| {
        let phase = match standing(entry) {
            Standing::Stands => APPLIED,
            Standing::Goes => DELETING,
            Standing::Gone => return false,
        };
        entry.phase = Some(phase.to_owned());
        true
    });
}

/// Facts about the workloads.
struct Workloads<'a> {
    wanted: Option<&'a WorkloadRecord>,
    former_goes: bool,
    lost_counts: bool,
}

enum Standing {
    Stands,
    Goes,
    Gone,
}

fn standing(observed: &Observed, workloads: &Workloads<'_>, entry: &InventoryEntry) -> Standing {
    let of = |deleting: Option<bool>| match deleting {
        None => Standing::Gone,
        Some(true) => Standing::Goes,
        Some(false) => Standing::Stands,
    };
    match &*entry.kind {
        "ServiceAccount" => of(ours(&observed.service_account, |it| it.metadata.deleting)),
        "ScaledObject" => of(ours(&observed.scaling.scaled_object, |it| {
            it.metadata.deleting
        })),
        "TriggerAuthentication" => {
            let found = &observed.scaling.trigger_authentication;
            of(ours(found, |it| it.metadata.deleting))
        }
        kind => {
            let is = |workload: &WorkloadRecord| workload.kind.name() == kind;
            let former = observed.former.as_ref();
            let wanted = workloads.wanted;
            if wanted.is_some_and(is) {
                of(wanted.map(|it| it.metadata.deleting))
            } else if former.is_some_and(|it| is(it)) {
                of(Some(workloads.former_goes))
            } else {
                of(workloads.lost_counts.then_some(false))
            }
        }
    }
}

fn ours<R>(child: &Child<R>, deleting: impl FnOnce(&R) -> bool) -> Option<bool> {
    child.ours().map(|record| deleting(record))
}
