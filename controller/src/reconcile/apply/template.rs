//! Applies our fields of a pod template without force, and gives them up (BIND-50).
//!
//! Dry-runs a pod first: a template whose pods the API server rejects would leave its workload in the middle of a
//! rollout (SAFE-39), and after a handoff, pods must get the older actor's sidecar (BIND-45).
//!
//! Asks the schedule here whether a dry run is due, for the reason that `probe.rs` gives. What the template must not
//! lose is read here, too: the object as it is now, which the watches do not hold.

use std::time::Duration;

use asya_shared::names::manager;
use asya_shared::probe::Replaced;
use asya_shared::resolve::ObjectRef;
use serde_json::Value;
use tracing::debug;

use super::contention::{ChangedField, first_changed_field};
use super::foreign_fields::{give_up_template, minimal_body};
use crate::binding::dry_run::{self, DryRunOutcome, ExpectedSidecar};
use crate::cluster::foreign::{ApplyError, ForeignApply};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::outcome::TemplateOutcome;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::plan::template::write::{self, TemplateParams, probe_failed};
use crate::reconcile::plan::template::{
    HANDOFF_RECHECK, HandoffProbe, TemplateStep, await_other_actor,
};
use crate::record::Key;

/// Executes the planned step.
pub(super) async fn template(
    context: &Context,
    actor: &Key,
    plan: TemplateStep,
    params: Option<TemplateParams>,
) -> Result<TemplateOutcome, Error> {
    match (plan, params) {
        (TemplateStep::Apply, Some(params)) => write(context, actor, params).await,
        (TemplateStep::RecordConflict, Some(params)) => {
            let changed = first_changed_field(context, &actor.namespace, &params.workload);
            let ChangedField { path, manager } = changed.await?;
            Ok(params.field_conflict(path, manager))
        }
        (TemplateStep::Apply | TemplateStep::RecordConflict, None) => {
            Ok(TemplateOutcome::NotChecked)
        }
        (TemplateStep::HandOff(workload, probe), _) => {
            if let Some(wait) = handoff_wait(context, actor, &probe).await {
                return Ok(await_other_actor(wait));
            }
            give_up(context, actor, &workload, None).await
        }
        (TemplateStep::GiveUp(workload, fault), _) => {
            give_up(context, actor, &workload, fault).await
        }
        (TemplateStep::NotDesired, _) => Ok(TemplateOutcome::NotDesired),
        (TemplateStep::Unchanged, _) => Ok(TemplateOutcome::Unchanged),
        (TemplateStep::Refuse(fault), _) => Ok(TemplateOutcome::Refused(fault)),
        (TemplateStep::Yield, _) => Ok(TemplateOutcome::Yielded),
        (TemplateStep::ClearStatus, _) => Ok(TemplateOutcome::GivenUp(None)),
        (TemplateStep::AwaitOther(wait), _) => Ok(await_other_actor(wait)),
        (TemplateStep::Wait(wait), _) => Ok(write::waiting(
            Reason::RolloutWaiting,
            TemplateOutcome::CONFLICT_MESSAGE,
            Requeue::After(wait),
        )),
    }
}

/// Gives up our fields of the pod template, with this fault if the spec still desires them.
async fn give_up(
    context: &Context,
    actor: &Key,
    workload: &ObjectRef,
    fault: Option<Fault>,
) -> Result<TemplateOutcome, Error> {
    let namespace = &actor.namespace;
    let body = context
        .bindings
        .read_object(&context.client, namespace, workload);
    let body = body.await.map_err(Error::Api)?;
    let target_object = body.map(|body| TargetObject::from_body(workload, &body, None));
    if let Some(blocked) = target_object.as_ref().and_then(write::blocked_change) {
        return Ok(blocked);
    }
    give_up_template(context, actor, workload).await?;
    Ok(TemplateOutcome::GivenUp(fault))
}

/// Dry-runs a pod of the workload, unless the schedule forbids it now. Returns how long to wait; `None` if new pods get
/// the sidecar of the actor that binds the target.
async fn handoff_wait(context: &Context, actor: &Key, probe: &HandoffProbe) -> Option<Duration> {
    let schedule = &context.bindings.probe_schedule;
    let next = schedule.next_probe(actor);
    if next.wait.is_some() {
        return next.wait;
    }
    let expected = ExpectedSidecar {
        actor_uid: &probe.uid,
        actor_hash: Some(&probe.actor_hash),
    };
    let client = &context.client;
    let namespace = &actor.namespace;
    match dry_run::run(client, namespace, &probe.pod, expected, Replaced::Pod).await {
        Ok(DryRunOutcome::Admitted) => {
            schedule.record_admitted(actor);
            None
        }
        Ok(DryRunOutcome::Failed(failure)) => {
            debug!(?failure, "the pod template is not handed off yet");
            // The other actor's status may be newer than what the webhook has read.
            let webhook_may_lag = next.failed.is_none();
            Some(schedule.record_failure(actor, failure, webhook_may_lag))
        }
        // An error must not block the rest of the plan.
        Err(error) => {
            debug!(%error, "the pod template is not handed off yet");
            Some(HANDOFF_RECHECK)
        }
    }
}

async fn write(
    context: &Context,
    actor: &Key,
    params: TemplateParams,
) -> Result<TemplateOutcome, Error> {
    let bindings = &context.bindings;
    let namespace = &*actor.namespace;
    if let Some(blocked) = params.blocked_before_read(bindings.probe_schedule.next_probe(actor)) {
        return Ok(blocked);
    }
    let Some(resource) = bindings.resource_of(&params.workload) else {
        return Ok(TemplateOutcome::NotChecked);
    };
    let body = bindings.read_object(&context.client, namespace, &params.workload);
    let Some(body) = body.await.map_err(Error::Api)? else {
        return Ok(TemplateOutcome::NotChecked);
    };
    write::check_uid(&params.workload, &body)?;
    let sidecar = &context.installation.settings.sidecar_resources;
    let template = match params.render_template(&body, sidecar) {
        Ok(template) => template,
        Err(blocked) => return Ok(blocked),
    };
    let mut patch = minimal_body(&params.workload);
    patch["spec"]["template"] = template;
    let writer = context.impersonation.client_for(namespace).await;
    let writer = writer.map_err(Error::Api)?;
    let apply = ForeignApply {
        namespace,
        resource: &resource,
        manager: manager::TEMPLATE,
        body: &patch,
    };
    let dry_run = match apply.dry_run(&writer, &body).await {
        Ok(dry_run) => dry_run,
        Err(error) => return write_error_outcome(params, error),
    };
    if let Some(refusal) = params.check_dry_run(&body, &dry_run.data) {
        return Ok(refusal);
    }
    if let Some(blocked) = probe(context, actor, &params, &dry_run.data).await? {
        return Ok(blocked);
    }
    let response = match apply.write(&writer).await {
        Ok(response) => response,
        Err(error) => return write_error_outcome(params, error),
    };
    bindings.invalidate_target(actor);
    Ok(params.applied(response, manager::TEMPLATE))
}

/// Dry-runs a pod of this workload, whose template already includes our fields. Returns what prevents the write.
async fn probe(
    context: &Context,
    actor: &Key,
    params: &TemplateParams,
    workload: &Value,
) -> Result<Option<TemplateOutcome>, Error> {
    let Some(pod) = params.probe_pod(workload) else {
        return Ok(None);
    };
    let expected = ExpectedSidecar {
        actor_uid: &params.uid,
        actor_hash: params.actor_hash(),
    };
    let probes = &context.bindings.probe_schedule;
    let outcome = dry_run::run(
        &context.client,
        &actor.namespace,
        &pod,
        expected,
        params.replaced,
    );
    match outcome.await.map_err(Error::Api)? {
        DryRunOutcome::Admitted => {
            probes.record_admitted(actor);
            Ok(None)
        }
        DryRunOutcome::Failed(failure) => {
            let wait = probes.record_failure(actor, failure.clone(), false);
            Ok(Some(probe_failed(&failure, wait)))
        }
    }
}

fn write_error_outcome(
    params: TemplateParams,
    error: ApplyError,
) -> Result<TemplateOutcome, Error> {
    match error.into_conflict(&params.workload.to_string()) {
        Ok(owned) => Ok(params.field_conflict(owned.field, Some(owned.manager))),
        Err(failed) => failed.fault().map(write::refused),
    }
}
