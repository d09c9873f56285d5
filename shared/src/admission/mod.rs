//! What tells the API server which pods and actors our webhook wants to see (docs/spec/admission.md, section 4), and
//! what the controller tells the webhook beside actors: pure functions from bindings and settings to objects.

pub mod facts;

mod configurations;
mod deletion;
mod entry;
mod expression;
mod legal;
#[cfg(test)]
mod testing;

pub use configurations::{Rules, mutating, validating};
pub use deletion::CRD;
pub use entry::required_entry_name;

use crate::resolve::{Family, PodMatch};

/// Where pods that are not `required` are sent.
pub const MUTATE_PATH: &str = "/mutate/pods";
/// Where pods of required bindings are sent.
pub const REQUIRED_PATH: &str = "/mutate/pods/required";
/// Where `AsyncActor`s are sent.
pub const VALIDATE_PATH: &str = "/validate/asyncactors";

/// Where deletions are sent that would take messages with them.
pub const DELETE_PATH: &str = "/validate/deletions";

/// Name of the entry that sends those.
pub const DELETION: &str = "deletion.asyncactors.asya.sh";
/// Name of the entry that sends actors; the API server names it in a refusal.
pub const VALIDATION: &str = "validate.asyncactors.asya.sh";

/// Most required entries in one object (CFG-7).
pub const REQUIRED_PER_OBJECT: usize = 100;
/// Required bindings beyond this many stay fail-open (CFG-7).
pub const MOST_REQUIRED: usize = 500;

/// Namespaces of Kubernetes itself, in which nothing is ever injected (CFG-5).
pub const KUBERNETES_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// What all entries have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What the objects' names begin with.
    pub release: String,
    /// The operator's own namespace.
    pub namespace: String,
    /// Where the webhook answers.
    pub endpoint: Endpoint,
    /// The authorities that its certificate is judged by, as PEM.
    pub ca_bundle: String,
    /// With whom the objects go.
    pub anchor: Anchor,
}

/// Where the webhook answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Service of the operator's namespace.
    Service {
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// `https://host:port`, where the API server reaches no Service.
    Url(String),
}

/// The `ClusterRole` that owns the configurations (CFG-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A binding with strategy Pod, as the entries need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The actor's namespace.
    pub namespace: String,
    /// The actor's name.
    pub actor: String,
    /// The owning system of its target.
    pub family: Family,
    /// Its pods.
    pub pods: PodMatch,
    /// Its pods may belong to objects that are not known yet ([`Resolver::intermediate`](crate::resolve::Resolver::intermediate)).
    pub open_ended: bool,
    /// What becomes of its pods while nobody answers.
    pub policy: Policy,
}

/// What becomes of pods while nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They start without the sidecar.
    Optional,
    /// They do not start, once it is proved that they do otherwise (CFG-8).
    Required {
        /// Whether it is.
        proved: bool,
    },
}
