//! Plans one child: whether it exists, is ours, and is as last applied.

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use kube::Resource;

use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::child::Child;
use crate::record::{AppliedRecord, LastApplied, Metadata};

/// The step for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChildStep {
    /// It is as desired, or nothing can be done.
    #[default]
    Keep,
    /// Apply it.
    Apply {
        /// Take over the former operator's fields first: the index of its `managedFields` entry (WRK-7).
        take_over: Option<usize>,
    },
    /// Delete the object with this UID.
    Delete(Box<str>),
    /// Wait for another object, usually for its deletion; the event triggers a reconcile.
    Wait,
}

/// Plans a child; `wanted` is `None` if there should be none.
pub fn plan_child<R: AppliedRecord>(
    found: &Child<R>,
    wanted: Option<&HashedManifest>,
    inventory: &[InventoryEntry],
) -> ChildStep {
    match (found, wanted) {
        (Child::Ours(found), _) if found.metadata().deleting => ChildStep::Wait,
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
                ChildStep::Keep
            } else {
                let take_over = found.last().former;
                ChildStep::Apply { take_over }
            }
        }
        (Child::Ours(found), None) => ChildStep::Delete(found.metadata().uid.clone()),
        (Child::Absent, Some(_)) => ChildStep::Apply { take_over: None },
        (Child::Absent, None) | (Child::Foreign(_), _) => ChildStep::Keep,
    }
}

/// Whether this is the object that we applied with this content, and no other manager has taken a field of ours since.
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

/// The inventory entry in status for an object that we applied.
pub fn recorded<'a>(
    inventory: &'a [InventoryEntry],
    kind: &str,
    name: &str,
) -> Option<&'a InventoryEntry> {
    let mut entries = inventory.iter();
    entries.find(|entry| entry.kind == kind && entry.name == name)
}

/// The fault for a name that the actor needs and another owner holds (SA-3).
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
