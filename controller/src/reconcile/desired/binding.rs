//! The desired state of an actor whose workload another controller manages.

use asya_shared::api::{BindingRollout, BindingStrategy, EffectiveBinding};
use asya_shared::config::{SecretKeyRef, Transport};
use asya_shared::inject::bound::{BoundPlan, PlanInputs};
use asya_shared::transport::required_secrets;
use asya_shared::validate::{self, Subject};

use crate::context::Installation;
use crate::fault::{Fault, Reason, Requeue};
use crate::record::ActorRecord;

#[derive(Debug)]
pub struct DesiredBinding {
    /// Why the binding is not allowed in these namespaces.
    pub namespace_fault: Option<Fault>,
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
    /// The Secrets that a pod cannot start without once it has the sidecar.
    pub secrets: Vec<SecretKeyRef>,
    /// Our fields in the target's pod template, with strategy Template.
    pub template_plan: Option<Box<BoundPlan>>,
}

impl DesiredBinding {
    pub(super) fn new(
        installation: &Installation,
        actor: &ActorRecord,
        subject: &Subject<'_>,
        effective: &EffectiveBinding<'_>,
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
            namespace_fault: namespace_fault(subject, &installation.namespace),
            strategy: effective.strategy,
            rollout: effective.rollout,
            required: effective.required,
            has_url: effective.runtime.target_url.is_some(),
            scales: subject.spec.effective_scaling().is_some(),
            injected_hash: plan.as_ref().map(|plan| plan.hash().to_string()),
            secrets: required_secrets(&transport.broker().sidecar_env()),
            template_plan: plan
                .filter(|_| effective.strategy == BindingStrategy::Template)
                .map(Box::new),
        }
    }
}

/// Why no target in this namespace can be bound (BIND-2).
fn namespace_fault(subject: &Subject<'_>, operator_namespace: &str) -> Option<Fault> {
    let cross_namespace = validate::cross_namespace_violation(subject);
    let cross_namespace = cross_namespace.map(|violation| (Reason::CrossNamespace, violation));
    let excluded = || {
        let violation = validate::excluded_namespace_violation(subject, operator_namespace)?;
        Some((Reason::NamespaceExcluded, violation))
    };
    let (reason, violation) = cross_namespace.or_else(excluded)?;
    Some(Fault::until_change(reason, violation.to_string()))
}

/// The fault of a binding whose pods could not start with the sidecar (SAFE-42). No watch reports a new Secret, so it
/// is retried.
pub fn missing_secret_fault(namespace: &str, secret: &SecretKeyRef) -> Fault {
    Fault {
        reason: Reason::CredentialsMissing,
        message: format!(
            "no Secret {} with key {} in namespace {namespace}, without which no pod of the target could start with \
             the sidecar; create it there, such as by copying the operator's",
            secret.name, secret.key
        ),
        requeue: Requeue::SlowBackoff,
    }
}
