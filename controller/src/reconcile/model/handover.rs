//! A target that changes hands: what a younger actor has in its pod template, and the older one that has it now (BIND-45).

use asya_shared::api::{AsyncActorStatus, BindingStrategy};
use asya_shared::resolve::ObjectRef;
use serde_json::Value;

/// What an actor applied to the pod template of a target that an older one binds.
#[derive(Clone, Debug, PartialEq)]
pub enum Ceded {
    /// It does not stand there any more.
    Gone,
    /// It does.
    Stands {
        /// The workload.
        workload: ObjectRef,
        /// Somebody else writes that, too, so nothing of ours is to stand there.
        owned: bool,
        /// The older actor.
        successor: Successor,
        /// A pod of the target without anybody's sidecar; `None`: none can be made up, or none is needed.
        pod: Option<Value>,
    },
}

/// The older actor, which a target is bound by now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Successor {
    /// Its UID.
    pub uid: Box<str>,
    /// New pods of the target get its sidecar.
    pub in_force: bool,
    /// It has strategy Template, too.
    pub templates: bool,
    /// The actor part of the hash that a dry run has passed with; `None`: its status has no gate (SAFE-3).
    pub proved: Option<String>,
}

impl Successor {
    /// By what status says of the actor with this UID, of this generation. Pods of the target would restart twice if they
    /// came without its sidecar first (BIND-45), so a dry run has to have passed; a status of an earlier release has no
    /// gate (SAFE-3).
    pub fn of(
        (uid, generation): (&str, i64),
        status: &AsyncActorStatus,
        strategy: BindingStrategy,
    ) -> Self {
        let templates = strategy == BindingStrategy::Template;
        let injection = status.injection.as_ref();
        let admits = injection.is_none_or(|it| {
            it.proved.is_some() && it.refused.is_none() && it.generation == Some(generation)
        });
        let bound = status.bound_since.is_some() && status.resolved_target.is_some();
        Self {
            uid: uid.into(),
            in_force: bound && (admits || templates),
            templates,
            proved: injection.and_then(|it| it.proved.clone()),
        }
    }
}
