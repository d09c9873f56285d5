//! Which pods and actors the API server sends to our webhook (docs/spec/admission.md, section 4), and what the
//! controller passes to the webhook besides actors: pure functions from bindings and settings to objects.

pub mod facts;

mod configurations;
mod deletion;
mod entry;
mod expression;
mod kept;
mod required;
mod syntax;
#[cfg(test)]
mod testing;

pub use configurations::{
    MutatingConfigurations, injector_name, mutating, owner_role_name, validating, validator_name,
};
pub use deletion::CRD_NAME;
pub use entry::{is_required_entry, required_entry_name};
pub use kept::kept_entries;
pub use required::{Unenforced, UnenforcedBinding};

use crate::resolve::{Integration, PodMatch};

/// Path that reviews pods of optional bindings.
pub const MUTATE_PATH: &str = "/mutate/pods";
/// Path that reviews pods of required bindings.
pub const REQUIRED_PATH: &str = "/mutate/pods/required";
/// Path that validates `AsyncActor`s.
pub const VALIDATE_PATH: &str = "/validate/asyncactors";

/// Path that reviews deletions that would delete messages.
pub const DELETE_PATH: &str = "/validate/deletions";

/// Name of the webhook entry for deletions.
pub const DELETION: &str = "deletion.asyncactors.asya.sh";
/// Name of the webhook entry for actors; the API server includes it in a rejection.
pub const VALIDATION_ENTRY: &str = "validate.asyncactors.asya.sh";

/// Maximum number of required entries per object (CFG-7).
pub const REQUIRED_PER_OBJECT: usize = 100;
/// Maximum size of an object as JSON, in bytes (CFG-7). etcd takes 1.5 MiB, together with `managedFields`.
const LARGEST_OBJECT: usize = 512 * 1024;
/// Maximum number of objects; the controller's RBAC rules name each of them (CFG-7, CFG-10).
pub const MAX_OBJECTS: usize = 10;
/// Maximum number of required entries that may fail closed (CFG-7).
pub const MAX_REQUIRED: usize = 500;

/// Settings that all entries share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySettings {
    /// Prefix of the objects' names.
    pub release: String,
    /// The operator's own namespace.
    pub namespace: String,
    /// Address of the webhook.
    pub endpoint: Endpoint,
    /// CA certificates for the webhook's certificate, as PEM.
    pub ca_bundle: String,
    /// Owner of the objects.
    pub owner_role: OwnerRole,
}

/// Address of the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Service in the operator's namespace.
    Service {
        /// Name of the Service.
        name: String,
        /// Port of the Service.
        port: u16,
    },
    /// `https://host:port`, for an API server that cannot reach Services.
    Url(String),
}

/// The `ClusterRole` that owns the configurations, so that they are deleted with it (CFG-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRole {
    /// Name of the `ClusterRole`.
    pub name: String,
    /// UID of the `ClusterRole`.
    pub uid: String,
}

/// The part of a binding with strategy Pod that its entry needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBinding {
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
    /// The integration that the target's kind belongs to.
    pub integration: Integration,
    /// Which pods it binds.
    pub pods: PodMatch,
    /// Whether its pods may belong to objects that are not known yet
    /// ([`Resolver::intermediate`](crate::resolve::Resolver::intermediate)).
    pub has_intermediate_owners: bool,
    /// The failure policy of its pods.
    pub policy: Policy,
}

/// The failure policy of pods: whether they are created while the webhook is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Pods start without the sidecar.
    Optional,
    /// Pods are rejected, once a dry run has verified that injection works (CFG-8).
    Required {
        /// Whether a dry run has verified it.
        verified: bool,
    },
}
