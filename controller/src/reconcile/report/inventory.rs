//! Every object that we made for an actor (FW-25).

use asya_shared::api::InventoryEntry;

use crate::reconcile::apply::{APPLIED, Ensured};
use crate::reconcile::observe::{Child, Observed};
use crate::record::WorkloadRecord;

const DELETING: &str = "Deleting";

/// What status remembers: answers to applies, never what a watch shows, where a rival's write would pass for ours.
pub(super) fn inventory(observed: &Observed, ensured: &Ensured) -> Vec<InventoryEntry> {
    let mut entries = observed.previous.inventory.clone();
    entries.retain_mut(|entry| match standing(observed, ensured, entry) {
        Standing::Stands => {
            entry.phase = Some(APPLIED.to_owned());
            true
        }
        Standing::Goes => {
            entry.phase = Some(DELETING.to_owned());
            true
        }
        Standing::Gone => false,
    });
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

enum Standing {
    Stands,
    Goes,
    Gone,
}

fn standing(observed: &Observed, ensured: &Ensured, entry: &InventoryEntry) -> Standing {
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
            let workload = ensured.workload.as_ref();
            let former = observed.former.as_ref();
            if workload.is_some_and(|it| is(it)) {
                of(workload.map(|it| it.metadata.deleting))
            } else if former.is_some_and(|it| is(it)) {
                // Not removed before the wanted one is there (WRK-6).
                of(Some(workload.is_some()))
            } else {
                of(workload.is_none().then_some(false))
            }
        }
    }
}

fn ours<R>(child: &Child<R>, deleting: impl FnOnce(&R) -> bool) -> Option<bool> {
    child.ours().map(|record| deleting(record))
}
