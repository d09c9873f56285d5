//! The desired state of an actor whose workload another controller manages.

use asya_shared::api::{BindingInForce, BindingRollout, BindingStrategy};
use asya_shared::config::Transport;
use asya_shared::inject::bound::{BoundPlan, PlanInputs};
use asya_shared::validate::{self, Subject};

use crate::context::Installation;
use crate::fault::{Fault, Reason};
use crate::record::ActorRecord;

/// The desired state of a binding.
#[derive(Debug)]
pub struct Bound {
    /// Why the binding is not allowed in these namespaces.
    pub misplaced: Option<Fault>,
    /// How the sidecar gets into pods.
    pub strategy: BindingStrategy,
    /// When pods that started before the binding get it.
    pub rollout: BindingRollout,
    /// Whether no pod may start without it.
    pub required: bool,
    /// Whether the actor itself gives the URL of the model server.
    pub has_url: bool,
    /// Whether the queue scales the target.
    pub scales: bool,
    /// The hash that pods with the desired sidecar carry; `None` for a kind that cannot be bound.
    pub injected_hash: Option<String>,
    /// Our part of the target's pod template, with strategy Template.
    pub plan: Option<Box<BoundPlan>>,
}

impl Bound {
    pub(super) fn new(
        installation: &Installation,
        actor: &ActorRecord,
        subject: &Subject<'_>,
        in_force: &BindingInForce<'_>,
        transport: &Transport,
    ) -> Self {
        let key = &actor.metadata.key;
        let plan = BoundPlan::new(&PlanInputs {
            namespace: &key.namespace,
            actor: &key.name,
            uid: &actor.metadata.uid,
            spec: subject.spec,
            role_arn: subject.role_arn,
            transport,
            settings: &installation.settings,
            scripts_hash: &installation.scripts_hash,
        });
        Self {
            misplaced: misplaced(subject, &installation.namespace),
            strategy: in_force.strategy,
            rollout: in_force.rollout,
            required: in_force.required,
            has_url: in_force.runtime.target_url.is_some(),
            scales: subject.spec.scaling_in_force().is_some(),
            injected_hash: plan.as_ref().map(|plan| plan.hash().to_string()),
            plan: plan
                .filter(|_| in_force.strategy == BindingStrategy::Template)
                .map(Box::new),
        }
    }
}

/// BIND-2
fn misplaced(subject: &Subject<'_>, own_namespace: &str) -> Option<Fault> {
    let crosses = validate::crosses_namespaces(subject);
    let crosses = crosses.map(|violation| (Reason::CrossNamespace, violation));
    let excluded = || {
        let violation = validate::in_excluded_namespace(subject, own_namespace)?;
        Some((Reason::NamespaceExcluded, violation))
    };
    let (reason, violation) = crosses.or_else(excluded)?;
    Some(Fault::until_change(reason, violation.to_string()))
}
