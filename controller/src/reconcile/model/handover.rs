//! Handover of a target: what the younger actor has in its pod template, and the older actor that binds it now
//! (BIND-45).

use asya_shared::api::{AsyncActorStatus, BindingStrategy};
use asya_shared::resolve::ObjectRef;
use serde_json::Value;

/// What an actor applied to the pod template of a target that an older actor binds.
#[derive(Clone, Debug, PartialEq)]
pub enum Ceded {
    /// It is no longer in the template.
    Gone,
    /// It is still in the template.
    Stands {
        workload: ObjectRef,
        /// Another controller owns the workload and writes it, so none of our fields may stay in it.
        owned: bool,
        /// The older actor, which takes over.
        successor: Successor,
        /// A pod of the target without any sidecar; `None` if none can be constructed or none is needed.
        pod: Option<Value>,
    },
}

/// The older actor that binds the target now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Successor {
    pub uid: Box<str>,
    /// Whether new pods of the target get its sidecar.
    pub in_force: bool,
    /// Whether its strategy is Template.
    pub templates: bool,
    /// The actor part of the hash whose dry run passed; `None` if none did or its status has no gate (SAFE-3).
    pub proved: Option<String>,
}

impl Successor {
    /// Reads the status of the actor with this UID and generation. Without a passed dry run, pods could come up without
    /// its sidecar first and restart twice (BIND-45). A status from an earlier release has no gate and counts as passed
    /// (SAFE-3).
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
