//! The steps of an apply of our part to a pod template, from what is read and tried on the way (SAFE-39).

use std::time::Duration;

use asya_shared::api::{Resources, TemplateStatus};
use asya_shared::inject::bound::{BoundPlan, Reason as NoSidecar, without_ours};
use asya_shared::resolve::{Family, ObjectRef};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::binding::probe_pod::from_template;
use crate::binding::probes::{Failure, Turn};
use crate::binding::specimen::Specimen;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::Specs;
use crate::reconcile::contention::history::FieldLoss;
use crate::reconcile::model::bound_pods::actor_part;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Templated;
use crate::reconcile::model::rollout::Live;
use crate::reconcile::plan::probe::is_complete;
use crate::record::applied_by;

/// Requeue intervals: no watch reports that a rollout has ended, or that a workload was resumed.
const ROLLS: Duration = Duration::from_secs(5);
const PAUSED: Duration = Duration::from_secs(10);
/// Requeue interval: no event reports that the quotas have been listed.
const UNLISTED: Duration = Duration::from_secs(1);

/// What an apply of our part needs.
#[derive(Debug)]
pub struct TemplateInputs {
    /// UID of the actor.
    pub uid: Box<str>,
    pub workload: ObjectRef,
    /// The current specs.
    pub specs: Specs,
    /// Our part.
    plan: Box<BoundPlan>,
    /// The hash that pods should carry.
    hash: Option<String>,
    /// Resources that need limits; `None` until the quotas have been listed.
    limits: Option<Vec<String>>,
    /// Another actor's part, applied by the same field manager, is overwritten (BIND-45).
    overwrites: bool,
    /// Labels and owner of a pod for the dry run.
    specimen: Option<Specimen>,
    /// The target has all the pods it asks for.
    pub complete: bool,
}

impl TemplateInputs {
    pub fn new(observed: &Observed) -> Option<Self> {
        let (bound, resolved) = (observed.bound()?, observed.resolved()?);
        let (actor, target) = (&observed.actor, &resolved.target);
        let limits = observed.binding.as_ref()?.limits.as_ref();
        let family = actor.binds_to.as_ref();
        let family = family.map_or(Family::Generic, Family::of_target);
        let part = resolved.templated.as_ref();
        Some(Self {
            uid: actor.metadata.uid.clone(),
            workload: target.workload.clone(),
            specs: resolved.specs(actor.generation),
            plan: bound.plan.clone()?,
            hash: bound.injected_hash.clone(),
            limits: limits.map(|it| it.iter().map(ToString::to_string).collect()),
            overwrites: part.is_some_and(|it| !it.is_of(&actor.metadata.uid)),
            specimen: Specimen::of(&target.pods, family),
            complete: is_complete(observed),
        })
    }

    /// The actor part of the hash that pods should carry.
    pub fn part(&self) -> Option<&str> {
        actor_part(self.hash.as_deref())
    }

    /// Why the template is not read yet; `turn` is the schedule of dry runs.
    pub fn before_read(&self, turn: Turn) -> Option<Templated> {
        if self.limits.is_none() {
            let text = "the quotas of the namespace have not been listed yet";
            return Some(waits(Reason::NotProven, text, Requeue::After(UNLISTED)));
        }
        Some(not_proven(&turn.failed?, turn.wait?))
    }

    /// Our part for the workload as it is, with these resources of the sidecar.
    ///
    /// # Errors
    /// Why it cannot be applied now.
    pub fn part_of(
        &self,
        (live, body): (&Live, &Value),
        sidecar: &Resources,
    ) -> Result<Value, Templated> {
        if let Some(waits) = cannot_roll(&self.workload, live) {
            return Err(waits);
        }
        let mut template = body["spec"]["template"].clone();
        if self.overwrites {
            without_ours(&mut template);
        }
        let limits = self.limits.as_deref().unwrap_or_default();
        let plan = BoundPlan::clone(&self.plan).with_limits(limits, sidecar);
        plan.in_template(&template).map_err(|(reason, why)| {
            let reason = match reason {
                NoSidecar::SpecConflict => Reason::SpecConflict,
                NoSidecar::TargetUrlUnknown => Reason::TargetURLUnknown,
                _ => Reason::StrategyNotAllowed,
            };
            let text = format!("{}: its pod template gets no sidecar: {why}", self.workload);
            waits(reason, &text, Requeue::AwaitChange)
        })
    }

    /// Why the apply that was `tried` on the workload `body` is not allowed.
    pub fn refusal(&self, body: &Value, tried: &Value) -> Option<Templated> {
        displaces_first(&self.workload, body, tried)
    }

    /// A pod of the workload, whose template already includes our part.
    pub fn pod_of(&self, workload: &Value) -> Option<Pod> {
        let claims = workload.pointer("/spec/volumeClaimTemplates");
        let template = workload.pointer("/spec/template")?;
        let pod = from_template(template, claims, self.specimen.as_ref()?)?;
        serde_json::from_value(pod).ok()
    }

    /// The outcome of the apply.
    pub fn applied(self, answer: DynamicObject, manager: &str) -> Templated {
        let entries = answer.metadata.managed_fields.unwrap_or_default();
        Templated::Applied(TemplateStatus {
            uid: self.workload.uid.unwrap_or_default(),
            hash: self.hash.unwrap_or_default(),
            target: self.specs.target,
            fingerprint: applied_by(&entries, manager).unwrap_or_default(),
        })
    }

    /// The outcome once another manager owns the field (CONF-7, CONF-8).
    pub fn lost(self, field: String, rival: Option<String>) -> Templated {
        Templated::Lost(FieldLoss {
            field,
            object: self.workload.to_string(),
            rival,
            specs: self.specs,
            last: false,
        })
    }
}

/// The outcome of an apply that the API server refused for another reason.
pub fn refused(fault: Fault) -> Templated {
    Templated::Waits(Reason::StrategyNotAllowed, fault.message, fault.retry)
}

/// Fails if the object is not the target any more.
///
/// # Errors
/// `Stale`.
pub fn confirm(workload: &ObjectRef, body: &Value) -> Result<(), Error> {
    if body["metadata"]["uid"].as_str() == workload.uid.as_deref() {
        Ok(())
    } else {
        Err(Error::Stale("the target"))
    }
}

/// Owners may take the first container for the model, so it must stay first (BIND-50).
fn displaces_first(workload: &ObjectRef, body: &Value, tried: &Value) -> Option<Templated> {
    let first = |it: &Value| it["spec"]["template"]["spec"]["containers"][0]["name"].clone();
    if first(tried) == first(body) {
        return None;
    }
    let text = format!(
        "{workload}: the sidecar would become the first container of its pod template, which its owner may take for the model; use strategy Pod"
    );
    Some(waits(
        Reason::StrategyNotAllowed,
        &text,
        Requeue::AwaitChange,
    ))
}

/// Why a changed template would not replace pods now, if it would not.
fn cannot_roll(workload: &ObjectRef, live: &Live) -> Option<Templated> {
    if live.paused {
        let text =
            format!("{workload}: spec.paused is true, so no pod would be replaced; resume it");
        return Some(waits(Reason::RolloutWaiting, &text, Requeue::After(PAUSED)));
    }
    let text = "the target's controller is replacing pods; its template is changed after that";
    let rolls = || waits(Reason::RolloutInProgress, text, Requeue::After(ROLLS));
    live.rolling.then(rolls)
}

/// Why the template is left as it is: no dry run has shown that its pods get the sidecar.
pub fn not_proven(failure: &Failure, wait: Duration) -> Templated {
    let (reason, text) = match failure {
        Failure::Refused(why) => (
            Reason::ProbeRejected,
            format!(
                "the API server refuses pods of the target with the sidecar, so its pod template is left as it is: a dry run of one was answered: {why}"
            ),
        ),
        Failure::Unasked(why) | Failure::LeftAlone(why) => (
            Reason::ProbeFailed,
            format!(
                "a dry run has not shown that pods of the target get the sidecar from its pod template, which is left as it is: {why}"
            ),
        ),
    };
    Templated::Waits(reason, text, Requeue::After(wait))
}

pub fn waits(reason: Reason, text: &str, retry: Requeue) -> Templated {
    Templated::Waits(reason, text.to_owned(), retry)
}

#[cfg(test)]
mod tests;
