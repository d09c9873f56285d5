//! Plans one child from whether it exists, is ours, and is unchanged since our last apply.

use std::marker::PhantomData;
use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use kube::Resource;

use crate::fault::{Fault, Reason, Requeue, StepError};
use crate::reconcile::model::child::{Child, ChildOwnership};
use crate::record::{ActorRecord, AppliedRecord, Key, LastApplied, Metadata};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChildStep {
    /// It is as desired, or must not be touched.
    #[default]
    Keep,
    Apply {
        /// Take over the Go operator's fields first: the index of its `managedFields` entry (WRK-7).
        take_over: Option<usize>,
    },
    /// Delete the object with this UID.
    Delete(Box<str>),
    /// Wait for another object, usually for its deletion; the watch event triggers a reconcile.
    Wait,
}

/// Plans a child; `desired` is `None` if it should not exist.
pub fn plan_child<R: AppliedRecord>(
    existing: &Child<R>,
    desired: Option<&HashedManifest>,
    inventory: &[InventoryEntry],
) -> ChildStep {
    match (existing, desired) {
        (Child::Ours(child), _) if child.metadata().deleting => ChildStep::Wait,
        (Child::Ours(child), Some(desired)) => {
            let applied = recorded(inventory, &R::Kind::kind(&()), &child.metadata().key.name);
            let is_as_desired =
                |entry| is_unchanged(entry, child.metadata(), child.last_applied(), &desired.hash);
            if applied.is_some_and(is_as_desired) {
                ChildStep::Keep
            } else {
                let take_over = child.last_applied().go_operator_entry;
                ChildStep::Apply { take_over }
            }
        }
        (Child::Ours(child), None) => ChildStep::Delete(child.metadata().uid.clone()),
        (Child::NotFound, Some(_)) => ChildStep::Apply { take_over: None },
        (Child::NotFound, None) | (Child::Foreign(_), _) => ChildStep::Keep,
    }
}

/// A child with everything that its step needs.
#[derive(Debug)]
pub struct PlannedChild<R> {
    pub key: Key,
    pub action: ChildAction,
    /// Decides whether an object with this name is ours.
    pub ownership: ChildOwnership,
    kind: PhantomData<fn() -> R>,
}

/// The step for a child, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildAction {
    None,
    /// Create it, without touching an existing object of that name.
    Create(HashedManifest),
    Update(ChildUpdate, HashedManifest),
    /// Delete the object with this UID.
    Delete(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildUpdate {
    pub uid: Box<str>,
    /// UID of the owner that the object still has from before the actor was restored from a backup (architecture, D13).
    pub previous_owner: Option<Box<str>>,
    /// Take over the Go operator's fields first: the index of its `managedFields` entry (WRK-7).
    pub take_over: Option<usize>,
}

impl ChildUpdate {
    fn of<R: AppliedRecord>(existing: &R, actor: &ActorRecord) -> Self {
        let metadata = existing.metadata();
        Self {
            uid: metadata.uid.clone(),
            previous_owner: metadata.other_owner(&actor.metadata.uid).map(Into::into),
            take_over: existing.last_applied().go_operator_entry,
        }
    }
}

impl<R: AppliedRecord> PlannedChild<R> {
    /// Combines the step with its parameters; `existing` is the object with this name.
    pub fn new(
        ownership: &ChildOwnership,
        key: Key,
        step: &ChildStep,
        existing: &Child<R>,
        desired: Option<&HashedManifest>,
    ) -> Self {
        let action = match (step, desired) {
            (ChildStep::Apply { .. }, Some(desired)) => match existing.ours() {
                Some(child) => {
                    let update = ChildUpdate::of(&**child, &ownership.actor);
                    ChildAction::Update(update, desired.clone())
                }
                None => ChildAction::Create(desired.clone()),
            },
            (ChildStep::Delete(uid), _) => ChildAction::Delete(uid.clone()),
            (ChildStep::Apply { .. } | ChildStep::Keep | ChildStep::Wait, _) => ChildAction::None,
        };
        Self {
            key,
            action,
            ownership: ownership.clone(),
            kind: PhantomData,
        }
    }
}

/// Plans the update after a creation failed because `existing`, which is not in the cache yet, has the name. `None`
/// while it is being deleted; the end of its deletion triggers a reconcile.
///
/// # Errors
/// `rejection` if the object does not exist after all, or a fault if it is foreign.
pub fn after_rejected_creation<R: AppliedRecord>(
    ownership: &ChildOwnership,
    existing: Option<Arc<R>>,
    rejection: StepError,
) -> Result<Option<ChildUpdate>, StepError> {
    match ownership.classify(existing, R::metadata) {
        Child::NotFound => Err(rejection),
        Child::Foreign(other) => Err(not_owned(&R::Kind::kind(&()), other.metadata()).into()),
        Child::Ours(child) if child.metadata().deleting => Ok(None),
        Child::Ours(child) => Ok(Some(ChildUpdate::of(&*child, &ownership.actor))),
    }
}

/// Whether this is the object that we applied with this hash, and no other manager has taken any of our fields since.
pub fn is_unchanged(
    applied: &InventoryEntry,
    metadata: &Metadata,
    last: &LastApplied,
    desired_hash: &str,
) -> bool {
    let fingerprint = last.fingerprint.map(|fingerprint| fingerprint.to_string());
    last.hash.as_deref() == Some(desired_hash)
        && applied.hash.as_deref() == Some(desired_hash)
        && applied.uid.as_deref() == Some(&*metadata.uid)
        && fingerprint.is_some()
        && applied.fingerprint == fingerprint
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

/// The fault for an object whose name the actor needs, but which belongs to another owner (SA-3).
pub fn not_owned(kind: &str, metadata: &Metadata) -> Fault {
    let owner = match &metadata.controller {
        Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
        None => "was not created by this operator".to_owned(),
    };
    Fault {
        reason: Reason::NotOwned,
        message: format!(
            "{kind} {} exists and {owner}; delete it or rename this actor (adoptionPolicy: IfUnowned adopts an \
             object without an owner)",
            metadata.key
        ),
        requeue: Requeue::SlowBackoff,
    }
}
