//! The validation rules for a spec, one function per rule. The webhook reports the violations, the controller joins the
//! same texts in a condition, and the CRD expresses in CEL whatever CEL can check.
//!
//! [`check`] validates an actor on its own. Rules across actors (a queue name or a target that is already taken) need
//! an index and are evaluated by the caller; their messages are here, too.

mod annotations;
mod binding;
mod claims;
mod containers;
mod decode;
mod env;
mod mode;
mod name;
mod namespace;
mod numbers;
mod pod;
mod runtime;
mod sidecar;
mod target;
mod template;
mod transport;
mod violation;
mod warnings;

#[cfg(test)]
mod tests;

use crate::api::AsyncActorSpec;
use crate::config::TransportsConfig;

pub use annotations::{STEERING, annotations};
pub use decode::decode;
pub use namespace::{crosses_namespaces, in_excluded_namespace};
pub use target::target_taken;
pub use transport::queue_taken;
pub use violation::{Violation, joined};
pub use warnings::{Warning, warnings};

use violation::Findings;

/// The input of the rules.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Name of the actor.
    pub name: &'a str,
    /// Namespace of the actor.
    pub namespace: &'a str,
    /// Spec of the actor.
    pub spec: &'a AsyncActorSpec,
    /// The actor's `eks.amazonaws.com/role-arn` annotation.
    pub role_arn: Option<&'a str>,
    /// The write to validate.
    pub write: Write<'a>,
    /// The configured transports.
    pub transports: &'a TransportsConfig,
    /// Whether sidecars may have more privileges than an ordinary container.
    pub privileged_sidecars: bool,
}

/// The kind of write to validate.
#[derive(Clone, Copy)]
pub enum Write<'a> {
    /// A new actor: all objects that will carry its name must be able to. The controller also uses this until it has
    /// created something for the actor.
    Create,
    /// A change of the spec.
    Update {
        /// The spec before the change.
        old: &'a AsyncActorSpec,
    },
    /// An actor that is already stored.
    Stored,
}

impl<'a> Subject<'a> {
    fn old(&self) -> Option<&'a AsyncActorSpec> {
        match self.write {
            Write::Update { old } => Some(old),
            Write::Create | Write::Stored => None,
        }
    }
}

type Rule = fn(&Subject<'_>, &mut Findings);

/// All rules. A rule ignores parts that it cannot read: [`template::shape`] reports those.
const RULES: &[Rule] = &[
    transport::is_named,
    mode::is_one,
    mode::is_kept,
    mode::runtime_needs_target,
    mode::binding_needs_target,
    name::serves_the_workload,
    name::serves_the_queues,
    numbers::are_in_range,
    numbers::min_is_not_above_max,
    numbers::formula_has_a_target,
    numbers::metric_type_can_be_read,
    template::shape,
    containers::one_is_the_runtime,
    containers::none_is_the_sidecar,
    containers::runtime_has_no_command,
    containers::names_are_unique,
    containers::runtime_has_an_image,
    pod::volumes_are_not_reserved,
    pod::mounts_are_not_managed,
    env::of_the_runtime_is_free,
    env::of_the_sidecar_is_free,
    pod::labels_are_ours_or_absent,
    pod::account_and_role_exclude_each_other,
    claims::need_a_stateful_set,
    claims::are_kept,
    target::is_kept,
    target::api_version_has_a_group,
    target::is_no_job,
    binding::template_fits_the_kind,
    binding::template_has_no_options,
    sidecar::is_not_privileged,
    runtime::target_url_is_plain,
    runtime::handler_is_dotted,
    runtime::env_is_free,
];

/// All violations of an actor, sorted by path.
#[must_use]
pub fn check(subject: &Subject<'_>) -> Vec<Violation> {
    let mut found = Findings::default();
    for rule in RULES {
        rule(subject, &mut found);
    }
    found.sorted()
}
