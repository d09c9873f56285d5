//! Pods of a bound target before and after their review, computed by the webhook's own code.

use std::sync::Arc;

use asya_shared::inject::bound::{
    BoundActor, BoundPlan, InjectedHash, InjectionReason, NotInjectable, PlanInputs,
};
use asya_shared::names::annotation;
use asya_shared::resolve::{IntermediateOwners, Target};
use asya_shared::review::{Actor, BindingInputs, bound_actor};
use asya_webhook::offline::{PodReview, ReviewContext, Webhook};
use serde_json::{Value, json};

use super::standalone::PreviewedActor;
use crate::installation::Installation;
use crate::why::KnownActor;

/// What the webhook knows once the operator has resolved the target.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub namespace: &'a str,
    pub operator_namespace: &'a str,
    pub installation: &'a Installation,
    /// The namespace's `RayCluster`s, if known.
    pub clusters: Option<&'a IntermediateOwners>,
    /// The actor as it would be stored.
    pub actor: &'a Value,
    /// The actor as it is stored.
    pub existing: Option<&'a Value>,
    /// Other actors in the namespace.
    pub others: &'a [Value],
    pub target: &'a Target,
    /// Resources for which a quota of the namespace requires limits.
    pub limits: &'a [String],
}

/// A pod of the target as it would be created now, and after the change.
#[derive(Clone, Debug)]
pub struct Pods {
    pub before: Value,
    pub after: PodReview,
}

impl Pods {
    /// The actor hash that new pods would carry; `None` if they would not get the sidecar.
    pub fn hash(&self) -> Option<String> {
        actor_hash(&self.after.pod).filter(|_| self.is_injected())
    }

    /// Both hashes of new pods, which roll pods immediately (ROLL-8).
    pub fn full_hash(&self) -> Option<&str> {
        self.after.pod["metadata"]["annotations"][annotation::INJECTED_HASH].as_str()
    }

    pub fn is_injected(&self) -> bool {
        use InjectionReason::{AlreadyInjected, Injected, Replaced, Restored};
        let reason = self.after.reason;
        self.after.denied.is_none()
            && [AlreadyInjected, Injected, Replaced, Restored].contains(&reason)
    }
}

/// The actor hash in a pod's annotation.
fn actor_hash(pod: &Value) -> Option<String> {
    let annotations = &pod["metadata"]["annotations"];
    let hash = annotations[annotation::INJECTED_HASH].as_str()?;
    InjectedHash::parse(hash).map(|it| it.actor)
}

/// Whether a pod has the sidecar of the actor with this UID and hash.
pub fn is_current(pod: &Value, uid: &str, hash: Option<&str>) -> bool {
    let by = pod["metadata"]["annotations"][annotation::INJECTED_BY].as_str();
    hash.is_some() && by == Some(uid) && actor_hash(pod).as_deref() == hash
}

/// Reviews a pod of the target as the webhook does now, and as it would after the change.
///
/// # Errors
/// If a review fails, which would be a bug of the webhook.
pub fn review(inputs: &Inputs<'_>, pod: &Value) -> Result<Pods, String> {
    let knowledge = ReviewContext {
        transports: &inputs.installation.transports,
        settings: &inputs.installation.settings,
        scripts_hash: scripts_hash(inputs.installation),
        operator_namespace: inputs.operator_namespace,
        namespace: inputs.namespace,
        clusters: inputs.clusters,
    };
    let known = |object: &Value| KnownActor::new(object.clone()).actor;
    let others = || inputs.others.iter().filter_map(known);
    let now = Webhook::new(&knowledge, others().chain(inputs.existing.and_then(known)));
    let then = Webhook::new(&knowledge, others().chain(in_effect(inputs)));
    Ok(Pods {
        before: now.review(pod)?.pod,
        after: then.review(pod)?,
    })
}

fn scripts_hash(installation: &Installation) -> &str {
    installation.facts.scripts.as_deref().unwrap_or_default()
}

/// The actor once the operator has bound the target and a dry run has shown that its pods are admitted.
fn in_effect(inputs: &Inputs<'_>) -> Option<Arc<Actor>> {
    let mut actor = inputs.actor.clone();
    actor["metadata"]["namespace"] = json!(inputs.namespace);
    let resolved = inputs.target.to_status(inputs.namespace);
    actor["status"]["resolvedTarget"] = json!(resolved);
    actor["status"]["injection"] = json!({"limits": inputs.limits});
    let namespace = inputs.namespace;
    let bound = KnownActor::from_file(&actor, namespace);
    let binding_inputs = BindingInputs {
        transports: &inputs.installation.transports,
        settings: &inputs.installation.settings,
        scripts_hash: scripts_hash(inputs.installation),
        clusters: inputs.clusters,
    };
    let plan = bound_actor(bound.actor.as_deref()?, &binding_inputs);
    if let Some(plan) = plan.as_ref().and_then(BoundActor::plan) {
        actor["status"]["injection"]["proved"] = json!(plan.hash().actor);
    }
    KnownActor::from_file(&actor, namespace).actor
}

/// The operator's fields in a workload's pod template, with strategy Template.
///
/// # Errors
/// Why pods of the template cannot get the sidecar, and how to fix it.
pub fn template_fields(
    subject: &PreviewedActor<'_>,
    target: &Target,
    limits: &[String],
    workload: &Value,
) -> Result<Value, NotInjectable> {
    let settings = &subject.installation.settings;
    let resolved = target.to_status(subject.namespace);
    let plan = BoundPlan::new(&PlanInputs {
        namespace: subject.namespace,
        actor: subject.name,
        uid: subject.uid,
        spec: subject.spec,
        role_arn: subject.role_arn,
        transport: subject.transport,
        settings,
        scripts_hash: scripts_hash(subject.installation),
    });
    let no_binding = || NotInjectable {
        reason: InjectionReason::NoActor,
        text: "the actor binds no target".into(),
    };
    let plan = plan.ok_or_else(no_binding)?;
    let plan = plan
        .for_target(Some(&resolved))
        .with_limits(limits, &settings.sidecar_resources);
    let template = plan.render_for_template(&workload["spec"]["template"])?;
    Ok(json!({
        "apiVersion": workload["apiVersion"], "kind": workload["kind"],
        "metadata": {"name": workload["metadata"]["name"]},
        "spec": {"template": template},
    }))
}

#[cfg(test)]
mod tests;
