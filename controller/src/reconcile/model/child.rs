//! The object under a child's name, and whether it is ours (SA-3).

use std::sync::Arc;
use std::time::Duration;

use asya_shared::names::GROUP;

use crate::record::{ActorRecord, Controller, Metadata, WorkloadRecord};

/// The object under a child's name.
#[derive(Clone, Debug)]
pub enum Child<R> {
    /// Not found, or not shown by any watch. Created by `Objects::create`, which fails if the object exists after
    /// all.
    NotFound,
    /// Created by us, or adoptable.
    Ours(Arc<R>),
    /// Owned by another controller or user (SA-3).
    Foreign(Arc<R>),
}

impl<R> Child<R> {
    /// The object, if it is ours.
    pub fn ours(&self) -> Option<&Arc<R>> {
        match self {
            Self::Ours(record) => Some(record),
            Self::NotFound | Self::Foreign(_) => None,
        }
    }
}

/// Decides whether an object is ours.
#[derive(Clone, Debug)]
pub struct ChildOwnership {
    /// The actor that needs the object.
    pub actor: Arc<ActorRecord>,
    /// Whether objects without a controller are adopted (FW-20).
    pub adopts: bool,
}

impl ChildOwnership {
    /// Classifies the object under the child's name.
    pub fn classify<R>(
        &self,
        object: Option<Arc<R>>,
        metadata: impl FnOnce(&R) -> &Metadata,
    ) -> Child<R> {
        match object {
            None => Child::NotFound,
            Some(record) if self.owns(metadata(&record).controller.as_ref()) => Child::Ours(record),
            Some(record) => Child::Foreign(record),
        }
    }

    /// Whether an object with this controller belongs to the actor.
    pub fn owns(&self, controller: Option<&Controller>) -> bool {
        controller.map_or(self.adopts, |owner| {
            is_actor_or_predecessor(owner, &self.actor)
        })
    }
}

/// Whether `owner` is this actor, or the same actor before it was restored from a backup.
pub fn is_actor_or_predecessor(owner: &Controller, actor: &ActorRecord) -> bool {
    owner.uid == actor.metadata.uid || has_actor_name(owner, actor)
}

/// Actor names are unique, so an owner with this name and another uid no longer exists: this actor was restored from a
/// backup (architecture, D13).
fn has_actor_name(owner: &Controller, actor: &ActorRecord) -> bool {
    let group = owner.api_version.split('/').next();
    (group, &*owner.kind) == (Some(GROUP), "AsyncActor") && *owner.name == *actor.metadata.key.name
}

/// Phase of an object in the inventory that was applied and is not being deleted.
pub const APPLIED: &str = "Applied";

/// Interval at which a workload that no watch shows is read again.
pub const UNWATCHED_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// When to read a workload again while a change is expected; `None` if a watch reports it.
pub fn unwatched_poll_interval(workload: &WorkloadRecord) -> Option<Duration> {
    (!workload.metadata.managed).then_some(UNWATCHED_POLL_INTERVAL)
}
