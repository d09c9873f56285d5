//! Plans our fields of a target's pod template, with strategy Template (BIND-50, CONF-1).

pub mod write;

use std::time::Duration;

use asya_shared::api::TemplateStatus;
use asya_shared::resolve::ObjectRef;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{
    ContentionState, ContestedPart, FieldDecision, FieldView, SpecRevision,
};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::TemplateOutcome;
use crate::reconcile::model::target_pods::actor_hash;
use crate::reconcile::model::template_handoff::TemplateHandoff;

/// Inputs to [`decide`].
#[derive(Clone, Debug)]
pub struct TemplateInputs<'a> {
    /// The sidecar should be in the template, and the binding is in effect (BIND-3).
    pub desired: bool,
    /// The object whose controller also writes the workload.
    pub owner: Option<&'a ObjectRef>,
    pub workload: &'a ObjectRef,
    /// The hash that pods should carry.
    pub hash: &'a str,
    /// Also apply changes that result only from the operator's version or settings (`asya.sh/roll-now`).
    pub roll_now: bool,
    /// Identifies the rest of the workload's spec.
    pub target_spec_hash: &'a str,
    /// Fingerprint of our fields of the workload; `None` if we own none.
    pub owned: Option<&'a str>,
    /// Our last apply, from status.
    pub previous: Option<&'a TemplateStatus>,
    /// Contention state of our fields.
    pub contention: &'a ContentionState,
    /// The actor's generation.
    pub generation: i64,
    pub now: Timestamp,
}

/// What to do about our fields of the pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TemplateStep {
    /// Nothing: they are not desired.
    #[default]
    NotDesired,
    /// Nothing: they are in place.
    Unchanged,
    Apply,
    /// Give up our fields of this workload, with a fault unless the spec requests that.
    GiveUp(ObjectRef, Option<Fault>),
    /// Check again after this delay: another actor's fields take precedence.
    AwaitOther(Duration),
    /// Give up our fields of this workload once a dry run has shown that its pods get the sidecar of the older actor
    /// that now binds it.
    HandOff(ObjectRef, HandoffProbe),
    /// They are already gone: clear them from status.
    ClearStatus,
    /// They are not allowed in this template.
    Refuse(Fault),
    /// Another manager changed them.
    RecordConflict,
    /// Apply them again after this delay.
    Wait(Duration),
    /// No longer apply them.
    Yield,
}

/// The dry run that has to pass before a younger actor gives up its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct HandoffProbe {
    /// The pod for the dry run.
    pub pod: Box<Pod>,
    /// UID of the actor whose sidecar the pod should get.
    pub uid: Box<str>,
    /// The actor hash that the pod should carry.
    pub actor_hash: String,
}

/// Requeue delay: no watch event of the younger actor reports that the older one is ready.
pub const HANDOFF_RECHECK: Duration = Duration::from_secs(2);

impl TemplateStep {
    /// Whether our fields leave the pod template, now or later. An actor without a usable queue gives them up, too.
    pub fn gives_up_fields(&self) -> bool {
        matches!(
            self,
            Self::GiveUp(..) | Self::HandOff(..) | Self::AwaitOther(_) | Self::ClearStatus
        )
    }
}

/// Plans our fields of the target's pod template, or its handoff to an older actor (BIND-45, BIND-50).
pub(super) fn plan_template(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    now: Timestamp,
) -> Option<TemplateStep> {
    let injection = observed.injection();
    if let Some(template_handoff) = injection.and_then(|it| it.template_handoff.as_ref()) {
        return Some(plan_template_handoff(template_handoff));
    }
    let bound = observed.desired_binding()?;
    let resolved = observed.resolved()?;
    let previous = &observed.previous;
    let target = &resolved.target;
    let has_url = bound.has_url || target.server.url.is_some();
    let contention = history?.state(ContestedPart::Template);
    let uid = &observed.actor.metadata.uid;
    let owned = resolved
        .our_template_fields
        .as_ref()
        .filter(|it| it.may_belong_to(uid));
    Some(decide(&TemplateInputs {
        desired: bound.template_plan.is_some() && previous.bound_since.is_some() && has_url,
        owner: target.owner.as_ref(),
        workload: &target.workload,
        hash: bound.injected_hash.as_deref()?,
        roll_now: observed.actor.annotations.roll_now,
        target_spec_hash: &resolved.spec_hash,
        owned: owned.map(|it| &*it.fingerprint),
        previous: previous.template.as_ref(),
        contention: &contention,
        generation: observed.actor.generation,
        now,
    }))
}

/// Plans the handoff to the older actor so that pods restart only once, with the older actor's sidecar (BIND-45).
fn plan_template_handoff(template_handoff: &TemplateHandoff) -> TemplateStep {
    let TemplateHandoff::InTemplate {
        workload,
        owned,
        recipient,
        pod,
    } = template_handoff
    else {
        return TemplateStep::ClearStatus;
    };
    let overwrites = recipient.uses_template && !owned;
    if !recipient.injects || overwrites {
        return TemplateStep::AwaitOther(HANDOFF_RECHECK);
    }
    match (&recipient.verified_actor_hash, pod) {
        // The webhook may not have observed the older actor's status yet.
        (Some(actor_hash), Some(pod)) if !recipient.uses_template => {
            let Ok(pod) = serde_json::from_value(pod.clone()) else {
                return TemplateStep::AwaitOther(HANDOFF_RECHECK);
            };
            let probe = HandoffProbe {
                pod,
                uid: recipient.uid.clone(),
                actor_hash: actor_hash.clone(),
            };
            TemplateStep::HandOff(workload.clone(), probe)
        }
        _ => TemplateStep::GiveUp(workload.clone(), None),
    }
}

/// Decides for a target that this actor binds.
pub fn decide(inputs: &TemplateInputs<'_>) -> TemplateStep {
    let uid = inputs.workload.uid.as_deref();
    let previous = inputs
        .previous
        .filter(|previous| Some(&*previous.uid) == uid);
    let is_applied = previous.is_some() && inputs.owned.is_some();
    if !inputs.desired {
        return if is_applied {
            TemplateStep::GiveUp(inputs.workload.clone(), None)
        } else {
            TemplateStep::NotDesired
        };
    }
    if let Some(owner) = inputs.owner {
        let text = format!(
            "spec.binding.strategy: {} belongs to {owner}, which would remove the sidecar from its pod template; use \
             Pod",
            inputs.workload
        );
        let fault = Fault::until_change(Reason::StrategyNotAllowed, text);
        return if is_applied {
            TemplateStep::GiveUp(inputs.workload.clone(), Some(fault))
        } else {
            TemplateStep::Refuse(fault)
        };
    }
    // Upgrading the operator restarts no pods, so only the actor hash counts (SAFE-35).
    let relevant = |hash| {
        if inputs.roll_now {
            Some(hash)
        } else {
            actor_hash(Some(hash))
        }
    };
    let is_same =
        previous.is_some_and(|previous| relevant(&previous.hash) == relevant(inputs.hash));
    let intact = previous.is_some_and(|previous| inputs.owned == Some(&*previous.fingerprint));
    // Our containers are rendered from the rest of the template.
    let is_same_spec =
        previous.is_some_and(|previous| previous.target_spec_hash == inputs.target_spec_hash);
    let revision = SpecRevision {
        generation: inputs.generation,
        spec_hash: inputs.target_spec_hash.to_owned(),
    };
    let view = FieldView {
        needed: true,
        was_set: is_same && !intact,
        has_desired_value: is_same && intact && is_same_spec,
    };
    match inputs.contention.decide(view, &revision, inputs.now) {
        FieldDecision::Keep | FieldDecision::AwaitReset(_) => TemplateStep::Unchanged,
        FieldDecision::Write => TemplateStep::Apply,
        FieldDecision::RecordConflict => TemplateStep::RecordConflict,
        FieldDecision::Wait(wait) => TemplateStep::Wait(wait),
        FieldDecision::Yield => TemplateStep::Yield,
    }
}

pub fn await_other_actor(wait: Duration) -> TemplateOutcome {
    let text = "another actor's sidecar takes precedence";
    write::waiting(Reason::AlreadyBound, text, Requeue::After(wait))
}

#[cfg(test)]
mod tests;
