//! What to do about one child: whether it is there, ours, and as we last applied it.

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use kube::Resource;

use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::child::Child;
use crate::record::{AppliedRecord, LastApplied, Metadata};

/// What to do about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// It is as wanted, or nothing can be done.
    #[default]
    Keep,
    /// Apply it.
    Apply {
        /// First make the former operator's fields ours: this is where they stand (WRK-7).
        take_over: Option<usize>,
    },
    /// Delete the one with this uid.
    Delete(Box<str>),
    /// Something must be gone first; its end is an event.
    Wait,
}

/// Decides about a child; `None` is not wanted.
pub fn plan_child<R: AppliedRecord>(
    found: &Child<R>,
    wanted: Option<&HashedManifest>,
    inventory: &[InventoryEntry],
) -> Step {
    match (found, wanted) {
        (Child::Ours(found), _) if found.metadata().deleting => Step::Wait,
        (Child::Ours(found), Some(wanted)) => {
            let kind = R::Kind::kind(&());
            let unchanged = is_unchanged(
                &kind,
                found.metadata(),
                found.last(),
                &wanted.hash,
                inventory,
            );
            if unchanged {
                Step::Keep
            } else {
                let take_over = found.last().former;
                Step::Apply { take_over }
            }
        }
        (Child::Ours(found), None) => Step::Delete(found.metadata().uid.clone()),
        (Child::Absent, Some(_)) => Step::Apply { take_over: None },
        (Child::Absent, None) | (Child::Foreign(_), _) => Step::Keep,
    }
}

/// Same object, sent with the same content, and nobody took a field of ours since.
pub fn is_unchanged(
    kind: &str,
    metadata: &Metadata,
    last: &LastApplied,
    wanted: &str,
    inventory: &[InventoryEntry],
) -> bool {
    let fingerprint = last.fingerprint.map(|fingerprint| fingerprint.to_string());
    recorded(inventory, kind, &metadata.key.name).is_some_and(|recorded| {
        last.hash.as_deref() == Some(wanted)
            && recorded.hash.as_deref() == Some(wanted)
            && recorded.uid.as_deref() == Some(&*metadata.uid)
            && fingerprint.is_some()
            && recorded.fingerprint == fingerprint
    })
}

/// What status remembers of an object as we last applied it.
pub fn recorded<'a>(
    inventory: &'a [InventoryEntry],
    kind: &str,
    name: &str,
) -> Option<&'a InventoryEntry> {
    let mut entries = inventory.iter();
    entries.find(|entry| entry.kind == kind && entry.name == name)
}

/// SA-3: a name that we need is somebody else's.
pub fn not_owned(kind: &str, metadata: &Metadata) -> Fault {
    let owner = match &metadata.controller {
        Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
        None => "was not made by this operator".to_owned(),
    };
    Fault {
        reason: Reason::NotOwned,
        message: format!(
            "{kind} {} exists and {owner}; delete it or rename this actor (adoptionPolicy: IfUnowned takes over one \
             without an owner)",
            metadata.key
        ),
        retry: Requeue::SlowBackoff,
    }
}
