//! All objects that we created for an actor (FW-25).

use asya_shared::api::{InventoryEntry, WorkloadKind};

use crate::reconcile::model::child::{APPLIED, Child};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{CommonOutcome, StandaloneOutcome};
use crate::record::WorkloadRecord;

const DELETING: &str = "Deleting";

/// Builds the inventory from the responses to applies, never from watches, where a write of another manager would look
/// like ours.
pub(super) fn inventory(
    observed: &Observed,
    outcome: &CommonOutcome,
    standalone: Option<&StandaloneOutcome>,
) -> Vec<InventoryEntry> {
    let mut entries = observed.previous.inventory.clone();
    let desired = standalone.and_then(|it| it.workload.as_deref());
    let workloads = InventoryWorkloads {
        desired,
        // Not deleted before the desired workload exists (WRK-6).
        previous_is_deleting: desired.is_some(),
        // A lost workload is recreated without waiting for its queue (QUE-4).
        keeps_missing: desired.is_none(),
    };
    update_phases(&mut entries, |entry| phase_of(observed, &workloads, entry));
    let stopped = standalone.and_then(|it| it.stopped.as_ref());
    for kind in stopped.iter().flat_map(|stopped| &stopped.kinds) {
        for entry in entries.iter_mut().filter(|entry| entry.kind == *kind) {
            (entry.hash, entry.fingerprint) = (None, None);
        }
    }
    for entry in &mut entries {
        entry.applied_generation = applied_generation(observed, entry);
    }
    for applied in &outcome.applied {
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

/// Generation of the spec that a workload was applied for, unless it is already as the current one requires (SAFE-36).
fn applied_generation(observed: &Observed, entry: &InventoryEntry) -> Option<i64> {
    let kinds = [WorkloadKind::Deployment, WorkloadKind::StatefulSet];
    if !kinds.iter().any(|kind| kind.name() == entry.kind) {
        return None;
    }
    let is_as_desired = observed.standalone().is_some_and(|desired| {
        let hash = &desired.workload.applied.hash;
        desired.kind.name() == entry.kind && entry.hash.as_ref() == Some(hash)
    });
    if is_as_desired {
        return None;
    }
    let previous = observed.previous.observed_generation;
    let is_changed = previous != Some(observed.actor.generation);
    entry.applied_generation.or(previous.filter(|_| is_changed))
}

/// Builds the inventory of an actor being deleted, after a reconcile that deleted the objects of these kinds; the
/// others are deleted later. What stays at a deletion with propagation policy Orphan stays listed: once the garbage
/// collector has removed its finalizer, only these entries say that the objects were the actor's (FW-23 (g)).
pub(super) fn of_deletion(observed: &Observed, deleted: &[&str]) -> Vec<InventoryEntry> {
    let mut entries = observed.previous.inventory.clone();
    if observed.deletion.orphans {
        return entries;
    }
    let previous = observed.previous_workload.as_ref();
    let workloads = InventoryWorkloads {
        desired: observed.workload.ours().map(|workload| &**workload),
        previous_is_deleting: previous.is_some_and(|previous| previous.metadata.deleting),
        keeps_missing: false,
    };
    update_phases(&mut entries, |entry| {
        match phase_of(observed, &workloads, entry) {
            ObjectPhase::Applied if deleted.contains(&&*entry.kind) => ObjectPhase::Deleting,
            phase => phase,
        }
    });
    entries
}

/// Updates the phase of each entry, and drops the entries of deleted objects.
fn update_phases(
    entries: &mut Vec<InventoryEntry>,
    mut phase_of: impl FnMut(&InventoryEntry) -> ObjectPhase,
) {
    entries.retain_mut(|entry| {
        let phase = match phase_of(entry) {
            ObjectPhase::Applied => APPLIED,
            ObjectPhase::Deleting => DELETING,
            ObjectPhase::Deleted => return false,
        };
        entry.phase = Some(phase.to_owned());
        true
    });
}

struct InventoryWorkloads<'a> {
    desired: Option<&'a WorkloadRecord>,
    previous_is_deleting: bool,
    keeps_missing: bool,
}

enum ObjectPhase {
    Applied,
    Deleting,
    Deleted,
}

fn phase_of(
    observed: &Observed,
    workloads: &InventoryWorkloads<'_>,
    entry: &InventoryEntry,
) -> ObjectPhase {
    let phase = |deleting: Option<bool>| match deleting {
        None => ObjectPhase::Deleted,
        Some(true) => ObjectPhase::Deleting,
        Some(false) => ObjectPhase::Applied,
    };
    match &*entry.kind {
        "ServiceAccount" => phase(is_deleting(&observed.service_account, |account| {
            account.metadata.deleting
        })),
        "ScaledObject" => phase(is_deleting(
            &observed.scaling.scaled_object,
            |scaled_object| scaled_object.metadata.deleting,
        )),
        "TriggerAuthentication" => {
            let authentication = &observed.scaling.trigger_authentication;
            phase(is_deleting(authentication, |it| it.metadata.deleting))
        }
        kind => {
            let is = |workload: &WorkloadRecord| workload.kind.name() == kind;
            let previous = observed.previous_workload.as_ref();
            let desired = workloads.desired;
            if desired.is_some_and(is) {
                phase(desired.map(|it| it.metadata.deleting))
            } else if previous.is_some_and(|workload| is(workload)) {
                phase(Some(workloads.previous_is_deleting))
            } else {
                phase(workloads.keeps_missing.then_some(false))
            }
        }
    }
}

fn is_deleting<R>(child: &Child<R>, deleting: impl FnOnce(&R) -> bool) -> Option<bool> {
    child.ours().map(|record| deleting(record))
}
