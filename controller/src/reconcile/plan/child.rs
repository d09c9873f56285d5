//! Plans one child: whether it exists, is ours, and is as last applied.

use std::marker::PhantomData;
use std::sync::Arc;

use asya_shared::api::InventoryEntry;
use asya_shared::applied::HashedManifest;
use kube::Resource;

use crate::fault::{Fault, Reason, Requeue, StepError};
use crate::reconcile::model::child::{Child, Ownership};
use crate::record::{ActorRecord, AppliedRecord, Key, LastApplied, Metadata};

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
            let applied = recorded(inventory, &R::Kind::kind(&()), &found.metadata().key.name);
            let is_as_wanted = |it| is_unchanged(it, found.metadata(), found.last(), &wanted.hash);
            if applied.is_some_and(is_as_wanted) {
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

/// A child with everything that its step needs.
#[derive(Debug)]
pub struct PlannedChild<R> {
    pub key: Key,
    pub action: ChildAction,
    /// Whether an object that has its name is ours.
    pub ownership: Ownership,
    kind: PhantomData<fn() -> R>,
}

/// What to do with a child.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildAction {
    None,
    /// Create it; an object that has its name is left alone.
    Create(HashedManifest),
    Update(ChildUpdate, HashedManifest),
    /// Delete the object with this UID.
    Delete(Box<str>),
}

/// An update of one of our objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildUpdate {
    pub uid: Box<str>,
    /// The owner with the actor's name before it was restored from a backup, if the object still has that one (D13).
    pub former_owner: Option<Box<str>>,
    /// Take over the former operator's fields first: the index of its `managedFields` entry (WRK-7).
    pub take_over: Option<usize>,
}

impl ChildUpdate {
    fn of<R: AppliedRecord>(found: &R, actor: &ActorRecord) -> Self {
        let metadata = found.metadata();
        Self {
            uid: metadata.uid.clone(),
            former_owner: metadata.owner_before(&actor.metadata.uid).map(Into::into),
            take_over: found.last().former,
        }
    }
}

impl<R: AppliedRecord> PlannedChild<R> {
    /// Combines the step for the object `found` under this name with what the step needs.
    pub fn new(
        ownership: &Ownership,
        key: Key,
        (step, found): (&ChildStep, &Child<R>),
        wanted: Option<&HashedManifest>,
    ) -> Self {
        let action = match (step, wanted) {
            (ChildStep::Apply { .. }, Some(wanted)) => match found.ours() {
                Some(found) => {
                    let update = ChildUpdate::of(&**found, &ownership.actor);
                    ChildAction::Update(update, wanted.clone())
                }
                None => ChildAction::Create(wanted.clone()),
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

/// The update after a rejected creation, of the object that has the name and that no watch has shown yet; `None`: its
/// deletion is awaited, which triggers a reconcile.
///
/// # Errors
/// `rejection` if the name is free after all, or the fault of a foreign object.
pub fn after_rejected_creation<R: AppliedRecord>(
    ownership: &Ownership,
    found: Option<Arc<R>>,
    rejection: StepError,
) -> Result<Option<ChildUpdate>, StepError> {
    match ownership.judge(found, R::metadata) {
        Child::Absent => Err(rejection),
        Child::Foreign(found) => Err(not_owned(&R::Kind::kind(&()), found.metadata()).into()),
        Child::Ours(found) if found.metadata().deleting => Ok(None),
        Child::Ours(found) => Ok(Some(ChildUpdate::of(&*found, &ownership.actor))),
    }
}

/// Whether this is the object that we applied with this content, and no other manager has taken a field of ours since.
pub fn is_unchanged(
    applied: &InventoryEntry,
    metadata: &Metadata,
    last: &LastApplied,
    wanted: &str,
) -> bool {
    let fingerprint = last.fingerprint.map(|fingerprint| fingerprint.to_string());
    last.hash.as_deref() == Some(wanted)
        && applied.hash.as_deref() == Some(wanted)
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
