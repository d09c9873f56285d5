//! Decisions while our fields are applied to a pod template, from what was read and dry-run so far (SAFE-39).

use std::slice;
use std::time::Duration;

use asya_shared::api::{Resources, TemplateStatus};
use asya_shared::inject::bound::{BoundPlan, InjectionReason, strip_injected};
use asya_shared::probe::{ProbeMetadata, Replaced, from_template};
use asya_shared::resolve::{Integration, ObjectRef};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::binding::dry_run::ProbeFailure;
use crate::binding::probe_schedule::NextProbe;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::contention::history::FieldConflict;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::TemplateOutcome;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::target_pods::actor_hash;
use crate::reconcile::plan::controller_rollout::RolloutBlocker;
use crate::record::applied_by;

/// Requeue intervals: no watch reports that a rollout has ended, that a workload was resumed or has another strategy,
/// or that all of its pods are ready.
const ROLLING_RETRY: Duration = Duration::from_secs(5);
const PAUSED_RETRY: Duration = Duration::from_secs(10);
const UNREADY_RETRY: Duration = Duration::from_secs(10);
/// Requeue interval: no event reports that the quotas have been listed.
const QUOTAS_UNSYNCED_RETRY: Duration = Duration::from_secs(1);

/// Parameters for an apply of our fields.
#[derive(Debug)]
pub struct TemplateParams {
    pub uid: Box<str>,
    pub workload: ObjectRef,
    /// The current revision of the specs.
    pub revision: SpecRevision,
    /// Renders our fields.
    plan: Box<BoundPlan>,
    /// The hash that pods should carry.
    hash: Option<String>,
    /// Resources that need limits; `None` until the quotas have been listed.
    limits: Option<Vec<String>>,
    /// The apply overwrites another actor's fields, which have the same field manager (BIND-45).
    overwrites_other: bool,
    /// Labels and owner of a pod for the dry run.
    probe_metadata: Option<ProbeMetadata>,
    /// What a new pod of the target replaces.
    pub replaced: Replaced,
    /// The pod template does not have the sidecar yet.
    pub is_first: bool,
}

impl TemplateParams {
    pub fn new(observed: &Observed, replaced: Replaced) -> Option<Self> {
        let bound = observed.desired_binding()?;
        let resolved = observed.resolved()?;
        let actor = &observed.actor;
        let target = &resolved.target;
        let limits = observed.injection()?.limits.as_ref();
        let integration = actor.binds_to.as_ref();
        let integration = integration.map_or(Integration::Generic, Integration::of_target);
        let ownership = resolved.our_template_fields.as_ref();
        let applied = observed.previous.template.as_ref();
        let is_in_template =
            applied.is_some_and(|it| Some(&*it.uid) == target.workload.uid.as_deref());
        Some(Self {
            uid: actor.metadata.uid.clone(),
            workload: target.workload.clone(),
            revision: resolved.revision(actor.generation),
            plan: bound.template_plan.clone()?,
            hash: bound.injected_hash.clone(),
            limits: limits.map(|limits| limits.iter().map(ToString::to_string).collect()),
            overwrites_other: ownership.is_some_and(|it| !it.may_belong_to(&actor.metadata.uid)),
            probe_metadata: ProbeMetadata::of(&target.pods, integration),
            replaced,
            is_first: !is_in_template,
        })
    }

    /// The actor hash that pods should carry.
    pub fn actor_hash(&self) -> Option<&str> {
        actor_hash(self.hash.as_deref())
    }

    /// Why the template is not read yet; `next_probe` is the schedule of dry runs.
    pub fn blocked_before_read(&self, next_probe: NextProbe) -> Option<TemplateOutcome> {
        if self.limits.is_none() {
            let text = "the quotas of the namespace have not been listed yet";
            return Some(waiting(
                Reason::NotProven,
                text,
                Requeue::After(QUOTAS_UNSYNCED_RETRY),
            ));
        }
        Some(probe_failed(&next_probe.failed?, next_probe.wait?))
    }

    /// Renders our fields for the workload `body`, with these resources of the sidecar.
    ///
    /// # Errors
    /// Why they cannot be applied now.
    pub fn render_template(
        &self,
        body: &Value,
        sidecar: &Resources,
    ) -> Result<Value, TemplateOutcome> {
        let target_object = TargetObject::from_body(&self.workload, body, None);
        if let Some(blocked) = blocked_rollout(&target_object, self.is_first) {
            return Err(blocked);
        }
        let mut template = body["spec"]["template"].clone();
        if self.overwrites_other {
            strip_injected(&mut template);
        }
        let limits = self.limits.as_deref().unwrap_or_default();
        let plan = BoundPlan::clone(&self.plan).with_limits(limits, sidecar);
        plan.render_for_template(&template).map_err(|obstacle| {
            let reason = match obstacle.reason {
                InjectionReason::SpecConflict => Reason::SpecConflict,
                InjectionReason::TargetUrlUnknown => Reason::TargetURLUnknown,
                _ => Reason::StrategyNotAllowed,
            };
            let text = format!(
                "{}: the sidecar cannot be added to its pod template: {}",
                self.workload, obstacle.text
            );
            waiting(reason, text, Requeue::AwaitChange)
        })
    }

    /// Why an apply to the workload `body` with this dry-run result is not allowed.
    pub fn check_dry_run(&self, body: &Value, result: &Value) -> Option<TemplateOutcome> {
        displaces_first(&self.workload, body, result)
    }

    /// A pod of the workload, whose template already includes our fields.
    pub fn probe_pod(&self, workload: &Value) -> Option<Pod> {
        let claims = workload.pointer("/spec/volumeClaimTemplates");
        let template = workload.pointer("/spec/template")?;
        let pod = from_template(template, claims, self.probe_metadata.as_ref()?)?;
        serde_json::from_value(pod).ok()
    }

    pub fn applied(self, response: DynamicObject, manager: &str) -> TemplateOutcome {
        let entries = response.metadata.managed_fields.unwrap_or_default();
        TemplateOutcome::Applied(TemplateStatus {
            uid: self.workload.uid.unwrap_or_default(),
            hash: self.hash.unwrap_or_default(),
            target_spec_hash: self.revision.spec_hash,
            fingerprint: applied_by(&entries, manager).unwrap_or_default(),
        })
    }

    /// The outcome if another manager owns the field (CONF-7, CONF-8).
    pub fn field_conflict(self, field: String, manager: Option<String>) -> TemplateOutcome {
        TemplateOutcome::Conflict(FieldConflict {
            field,
            object: self.workload.to_string(),
            manager,
            revision: self.revision,
            yields: false,
        })
    }
}

/// The outcome of an apply that the API server rejected for a reason other than a field conflict.
pub fn refused(fault: Fault) -> TemplateOutcome {
    TemplateOutcome::Waiting(Fault {
        reason: Reason::StrategyNotAllowed,
        ..fault
    })
}

/// Fails if the object is no longer the target.
///
/// # Errors
/// `Stale`.
pub fn check_uid(workload: &ObjectRef, body: &Value) -> Result<(), Error> {
    if body["metadata"]["uid"].as_str() == workload.uid.as_deref() {
        Ok(())
    } else {
        Err(Error::Stale("the target"))
    }
}

/// Refuses to displace the first container, because owners may take that one for the model (BIND-50).
fn displaces_first(workload: &ObjectRef, body: &Value, result: &Value) -> Option<TemplateOutcome> {
    let first = |body: &Value| body["spec"]["template"]["spec"]["containers"][0]["name"].clone();
    if first(result) == first(body) {
        return None;
    }
    let text = format!(
        "{workload}: the sidecar would become the first container of its pod template, which its owner may mistake \
         for the model; use strategy Pod"
    );
    Some(waiting(
        Reason::StrategyNotAllowed,
        text,
        Requeue::AwaitChange,
    ))
}

/// Why a change of the pod template would not replace pods now, or must not. `is_first` adds the sidecar.
fn blocked_rollout(workload: &TargetObject, is_first: bool) -> Option<TemplateOutcome> {
    let object = &workload.object;
    if workload.paused {
        let text = format!(
            "{object}: spec.paused is true, so its controller would replace no pod; resume the rollout"
        );
        return Some(waiting(
            Reason::RolloutWaiting,
            text,
            Requeue::After(PAUSED_RETRY),
        ));
    }
    if workload.rolling {
        let text = "the target's controller is replacing pods; its pod template is changed once that has finished";
        return Some(waiting(
            Reason::RolloutInProgress,
            text,
            Requeue::After(ROLLING_RETRY),
        ));
    }
    // A later change may repair a sidecar that keeps pods from becoming ready.
    let unready = || {
        let blocker = RolloutBlocker::loses_ready_pod(slice::from_ref(workload));
        blocker.filter(|_| is_first).map(|blocker| {
            let retry = Requeue::After(UNREADY_RETRY);
            waiting(Reason::RolloutWaiting, blocker.to_string(), retry)
        })
    };
    blocked_change(workload).or_else(unready)
}

/// Why no field of the pod template may change now, not even to give up ours: all pods would stop at once (SAFE-14).
pub fn blocked_change(workload: &TargetObject) -> Option<TemplateOutcome> {
    let blocker = RolloutBlocker::stops_all_pods(slice::from_ref(workload))?;
    Some(waiting(
        Reason::RolloutWaiting,
        blocker.to_string(),
        Requeue::After(UNREADY_RETRY),
    ))
}

/// The outcome while no dry run has shown that pods of the template get the sidecar.
pub fn probe_failed(failure: &ProbeFailure, wait: Duration) -> TemplateOutcome {
    let (reason, text) = match failure {
        ProbeFailure::Rejected(why) => (
            Reason::ProbeRejected,
            format!(
                "the API server rejects pods of the target with the sidecar, so the pod template is not changed; it \
                 answered the dry run: {why}"
            ),
        ),
        ProbeFailure::NotCalled(why) | ProbeFailure::NotInjected(why) => (
            Reason::ProbeFailed,
            format!(
                "a dry run has not shown that pods get the sidecar from the target's pod template, so it is not \
                 changed: {why}"
            ),
        ),
    };
    waiting(reason, text, Requeue::After(wait))
}

pub fn waiting(reason: Reason, text: impl Into<String>, requeue: Requeue) -> TemplateOutcome {
    TemplateOutcome::Waiting(Fault {
        reason,
        message: text.into(),
        requeue,
    })
}

#[cfg(test)]
mod tests;
