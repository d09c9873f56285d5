//! Handoff of a pod template from the younger actor, whose fields are in it, to the older actor that binds the target
//! (BIND-45).

use asya_shared::api::{AsyncActorStatus, BindingStrategy};
use asya_shared::resolve::ObjectRef;
use serde_json::Value;

/// The younger actor's fields of the pod template.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplateHandoff {
    /// They are no longer in the template.
    Removed,
    /// They are still in the template.
    InTemplate {
        workload: ObjectRef,
        /// Another controller owns the workload and writes it, so none of our fields may stay in it.
        owned: bool,
        /// The older actor, which gets the pod template.
        recipient: TemplateRecipient,
        /// A pod of the target without any sidecar; `None` if none can be constructed or none is needed.
        pod: Option<Value>,
    },
}

/// The older actor that binds the target now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateRecipient {
    pub uid: Box<str>,
    /// Whether new pods of the target get its sidecar.
    pub injects: bool,
    pub uses_template: bool,
    /// The actor hash whose dry run passed; `None` if none did or its status records no dry runs (SAFE-3).
    pub verified_actor_hash: Option<String>,
}

impl TemplateRecipient {
    /// Reads the status of the actor with this UID and generation. Without a passed dry run, pods could come up without
    /// its sidecar first and restart twice (BIND-45). A status from an earlier version records no dry runs and counts
    /// as passed (SAFE-3).
    pub fn from_status(
        uid: &str,
        generation: i64,
        status: &AsyncActorStatus,
        strategy: BindingStrategy,
    ) -> Self {
        let uses_template = strategy == BindingStrategy::Template;
        let injection = status.injection.as_ref();
        let verified = injection.is_none_or(|injection| {
            injection.verified_actor_hash.is_some()
                && injection.rejected_actor_hash.is_none()
                && injection.generation == Some(generation)
        });
        let bound = status.bound_since.is_some() && status.resolved_target.is_some();
        Self {
            uid: uid.into(),
            injects: bound && (verified || uses_template),
            uses_template,
            verified_actor_hash: injection.and_then(|it| it.verified_actor_hash.clone()),
        }
    }
}
