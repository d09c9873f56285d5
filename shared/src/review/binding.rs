//! Prepares bindings for reviews.

use super::Actor;
use crate::config::{Settings, TransportsConfig};
use crate::inject::bound::{ActorInputs, BoundActor};
use crate::resolve::IntermediateOwners;
use crate::validate;

/// Inputs besides the actor from which a binding is prepared.
#[derive(Clone, Copy)]
pub struct BindingInputs<'a> {
    /// The configured transports.
    pub transports: &'a TransportsConfig,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Hash of the runtime's scripts (ROLL-8).
    pub scripts_hash: &'a str,
    /// `RayCluster`s of the actor's namespace, if known.
    pub clusters: Option<&'a IntermediateOwners>,
}

/// Prepares a binding for reviews; `None` for a standalone actor, and for a spec that cannot be decoded.
#[must_use]
pub fn bound_actor(actor: &Actor, inputs: &BindingInputs<'_>) -> Option<BoundActor> {
    let spec = validate::decode(actor.spec.as_ref()?.get()).ok()?;
    BoundActor::new(&ActorInputs {
        namespace: &actor.key.namespace,
        name: &actor.key.name,
        uid: &actor.uid,
        created: actor.created.as_ref(),
        deleting: actor.deleting,
        spec: &spec,
        role_arn: actor.role_arn.as_deref(),
        bound: actor.status.bound_since.is_some(),
        injection: actor.status.injection.as_ref(),
        resolved: actor.status.resolved_target.as_ref(),
        transports: inputs.transports,
        settings: inputs.settings,
        scripts_hash: inputs.scripts_hash,
        clusters: inputs.clusters,
    })
}
