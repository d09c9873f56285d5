//! The validation rules for a spec, one function per rule. The webhook reports the violations, the controller joins the
//! same texts in a condition, and the CRD expresses in CEL whatever CEL can check.
//!
//! [`check`] validates an actor on its own. Rules across actors (a queue name or a target that is already taken) need
//! an index and are evaluated by the caller; their messages are here, too.

mod annotations;
mod binding;
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
mod size;
mod target;
mod template;
mod transport;
mod violation;
mod volume_claims;
mod warnings;

#[cfg(test)]
mod tests;

use crate::api::{AsyncActorSpec, WorkloadKind};
use crate::config::TransportsConfig;

pub use annotations::{CONTROL_ANNOTATIONS, annotations, is_switched_on};
pub use decode::decode;
pub use namespace::{cross_namespace_violation, excluded_namespace_violation};
pub use size::{MAX_SPEC_BYTES, kept_spec, spec_size};
pub use target::target_already_bound;
pub use transport::queue_in_use;
pub use violation::{Violation, joined};
pub use warnings::{Warning, warnings};

use violation::Violations;

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
    Stored(Recorded<'a>),
}

/// What is known to exist for a stored actor. Its spec may have changed while the webhook was down.
#[derive(Clone, Copy, Default)]
pub struct Recorded<'a> {
    /// Kinds of the workloads with its name.
    pub workloads: &'a [WorkloadKind],
    /// The transport that has its queue.
    pub transport: Option<&'a str>,
}

impl<'a> Subject<'a> {
    pub(crate) fn old(&self) -> Option<&'a AsyncActorSpec> {
        match self.write {
            Write::Update { old } => Some(old),
            Write::Create | Write::Stored(_) => None,
        }
    }
}

type Rule = fn(&Subject<'_>, &mut Violations);

/// All rules, each with the requirement that it enforces. A rule ignores parts that it cannot read: [`template::shape`]
/// reports those.
const RULES: &[(&str, Rule)] = &[
    ("VAL-1", transport::is_named),
    ("VAL-2", mode::is_one),
    ("BIND-13", mode::is_immutable),
    ("BIND-11", mode::runtime_needs_target),
    ("BIND-12", mode::binding_needs_target),
    ("VAL-11", name::is_valid_for_workload),
    ("VAL-11", name::is_valid_for_queues),
    ("VAL-12", numbers::are_in_range),
    ("VAL-21", numbers::concurrency_is_in_range),
    ("VAL-12", numbers::min_is_not_above_max),
    ("VAL-13", numbers::formula_has_a_target),
    ("VAL-13", numbers::metric_type_can_be_read),
    ("API-6", template::shape),
    ("VAL-3", containers::has_one_runtime),
    ("VAL-4", containers::reserves_sidecar_name),
    ("VAL-5", containers::runtime_has_no_command),
    ("VAL-6", containers::names_are_unique),
    ("VAL-6", containers::runtime_has_an_image),
    ("VAL-7", pod::volumes_are_not_reserved),
    ("VAL-8", pod::mounts_are_not_managed),
    ("VAL-9", env::runtime_env_is_not_reserved),
    ("VAL-9", env::sidecar_env_is_not_reserved),
    ("VAL-10", pod::reserved_labels_have_the_required_value),
    ("VAL-15", pod::account_and_role_exclude_each_other),
    ("VAL-14", volume_claims::need_a_stateful_set),
    ("VAL-14", volume_claims::are_immutable),
    ("BIND-14", target::is_immutable),
    ("BIND-15", target::api_version_has_a_group),
    ("BIND-16", target::rejects_jobs),
    ("BIND-17", binding::template_fits_the_kind),
    ("BIND-18", binding::template_has_no_options),
    ("SEC-15", sidecar::is_not_privileged),
    ("BIND-26", sidecar::is_not_root_in_bound_pods),
    ("BIND-19", runtime::target_url_is_plain),
    ("BIND-19", runtime::handler_is_dotted),
    ("BIND-19", runtime::env_is_not_reserved),
];

/// The requirements that the rules enforce, one per rule: an id is there as often as it has rules.
pub fn rule_ids() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(requirement, _)| *requirement)
}

/// All violations of an actor, sorted by path.
#[must_use]
pub fn check(subject: &Subject<'_>) -> Vec<Violation> {
    let mut found = Violations::default();
    for (_, rule) in RULES {
        rule(subject, &mut found);
    }
    found.sorted()
}

/// The requirement that a violation of [`check`] breaks, for example `VAL-3`.
#[must_use]
pub fn requirement_of(subject: &Subject<'_>, violation: &Violation) -> Option<&'static str> {
    let breaks = |rule: Rule| {
        let mut found = Violations::default();
        rule(subject, &mut found);
        found.sorted().contains(violation)
    };
    let broken = RULES.iter().find(|(_, rule)| breaks(*rule));
    broken.map(|(requirement, _)| *requirement)
}
