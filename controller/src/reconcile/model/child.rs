//! The object under a name that an actor needs, and whose it is (SA-3).

use std::sync::Arc;
use std::time::Duration;

use asya_shared::names::GROUP;

use crate::record::{ActorRecord, Controller, Metadata, WorkloadRecord};

/// The object under a name that we need.
#[derive(Clone, Debug)]
pub enum Child<R> {
    /// There is none, or one that no watch shows, which is why it is made by [`Objects::create`].
    Absent,
    /// We made it, or may take it over.
    Ours(Arc<R>),
    /// Somebody else's (SA-3).
    Foreign(Arc<R>),
}

impl<R> Child<R> {
    /// The object, if it is ours.
    pub fn ours(&self) -> Option<&Arc<R>> {
        match self {
            Self::Ours(record) => Some(record),
            Self::Absent | Self::Foreign(_) => None,
        }
    }
}

/// What decides whose an object is.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The actor that needs the object.
    pub actor: Arc<ActorRecord>,
    /// Whether it takes over what has no owner (FW-20).
    pub adopts: bool,
}

impl Ownership {
    /// Whose the object is that was found.
    pub fn judge<R>(
        &self,
        found: Option<Arc<R>>,
        metadata: impl FnOnce(&R) -> &Metadata,
    ) -> Child<R> {
        match found {
            None => Child::Absent,
            Some(record) if self.has(metadata(&record).controller.as_ref()) => Child::Ours(record),
            Some(record) => Child::Foreign(record),
        }
    }

    /// Whether an object with this owner is the actor's.
    pub fn has(&self, controller: Option<&Controller>) -> bool {
        controller.map_or(self.adopts, |owner| is_of(owner, &self.actor))
    }
}

/// Whether `owner` is the actor, or the one that it was before it was restored from a backup.
pub fn is_of(owner: &Controller, actor: &ActorRecord) -> bool {
    owner.uid == actor.metadata.uid || is_of_its_name(owner, actor)
}

/// D13: there is one actor of a name, so an owner with its name and another uid is gone, and this one was
/// restored from a backup.
fn is_of_its_name(owner: &Controller, actor: &ActorRecord) -> bool {
    let group = owner.api_version.split('/').next();
    (group, &*owner.kind) == (Some(GROUP), "AsyncActor") && *owner.name == *actor.metadata.key.name
}

/// From one look at a workload that no watch shows to the next.
pub const UNSEEN: Duration = Duration::from_secs(2);

/// When to look again at a workload of which something is expected; `None`: its watch tells.
pub fn unseen(workload: &WorkloadRecord) -> Option<Duration> {
    (!workload.metadata.labelled).then_some(UNSEEN)
}
