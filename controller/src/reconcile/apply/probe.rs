//! Dry-runs pods with the sidecar: one probe verifies that the API server admits such pods at all, before the webhook
//! injects any (SAFE-1); another before each rollout step verifies that new pods are injected (ROLL-2).
//!
//! Asks the schedule here whether a dry run is due, because all actors share it: another actor's probe may just have
//! shown that the webhook is back. For the same reason, a rollout that a dry run blocks returns its slot at once.

use super::rollout::roll_out;
use crate::binding::dry_run::{self, DryRunOutcome, ProbeFailure};
use crate::clock;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::{BindingOutcome, ProbeOutcome, ProbeState, RolloutOutcome};
use crate::reconcile::plan::probe::{PlannedProbe, ProbeParams, ProbeStep, StepReadiness};
use crate::reconcile::plan::rollout::inputs::RolloutDecision;
use crate::reconcile::plan::rollout::params::PlannedRollout;
use crate::record::{ActorRecord, Key};

/// Purpose of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbePurpose {
    /// Would a pod with the sidecar be admitted? The pod is annotated as a probe.
    Admission,
    /// Would a pod of the target get the sidecar?
    Rollout,
}

/// Makes the dry run that is due, and executes the rollout step that it allows.
pub(super) async fn probe_and_roll_out(
    context: &Context,
    actor: &ActorRecord,
    planned_probe: PlannedProbe,
    rollout: Option<PlannedRollout>,
    handoff: Option<bool>,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    let (decision, rollout_params) = rollout
        .map(|planned| (planned.decision, planned.params))
        .unzip();
    let key = &actor.metadata.key;
    let probed = Box::pin(probe(
        context,
        key,
        &planned_probe.params,
        planned_probe.step,
        decision,
        outcome,
    ))
    .await?;
    outcome.rollout = match (probed, rollout_params) {
        (Some(Err(blocked)), _) => blocked,
        (Some(Ok(decision)), Some(params)) => {
            roll_out(context, actor, decision, params, handoff).await?
        }
        (None, _) | (_, None) => return Ok(()),
    };
    Ok(())
}

/// Makes the dry run that is due. Returns the planned rollout if new pods get the sidecar, or the outcome that blocks
/// it.
async fn probe(
    context: &Context,
    key: &Key,
    params: &ProbeParams,
    step: ProbeStep,
    rollout: Option<RolloutDecision>,
    outcome: &mut BindingOutcome,
) -> Result<Option<Result<RolloutDecision, RolloutOutcome>>, Error> {
    match step {
        ProbeStep::Skip => {}
        ProbeStep::Wait(wait) => outcome.probe.next_probe_in = Some(wait),
        ProbeStep::Run => {
            outcome.probe = run_probe(context, key, params, ProbePurpose::Admission).await?;
        }
    }
    let Some(rollout) = rollout else {
        return Ok(None);
    };
    let next_probe = || context.bindings.probe_schedule.next_probe(key);
    let mut readiness = params.before_step(&rollout, &outcome.probe, &next_probe(), clock::now());
    if readiness == StepReadiness::NeedsProbe {
        outcome.probe = run_probe(context, key, params, ProbePurpose::Rollout).await?;
        readiness = params.after_step_probe(&outcome.probe, &next_probe(), clock::now());
    }
    let StepReadiness::Blocked(blocked, next_probe_in) = readiness else {
        return Ok(Some(Ok(rollout)));
    };
    outcome.probe.next_probe_in = next_probe_in.or(outcome.probe.next_probe_in);
    if blocked != RolloutOutcome::NoPodsYet {
        // A rollout that cannot proceed must not block others.
        context.rollout_slots.release(key);
    }
    Ok(Some(Err(blocked)))
}

async fn run_probe(
    context: &Context,
    key: &Key,
    params: &ProbeParams,
    purpose: ProbePurpose,
) -> Result<ProbeState, Error> {
    let probes = &context.bindings.probe_schedule;
    let outcome = match params.pod.as_deref() {
        None => DryRunOutcome::Failed(ProbeFailure::NotInjected(
            "the operator cannot construct a pod that would match the target, so no dry run can show that new pods \
             get the sidecar; restart the target's pods yourself"
                .to_owned(),
        )),
        Some(pod) => {
            let pod = match purpose {
                ProbePurpose::Admission => &dry_run::with_probe_annotation(pod, &params.uid),
                ProbePurpose::Rollout => pod,
            };
            let expected = (&*params.uid, params.actor_hash.as_deref());
            dry_run::run(&context.client, &key.namespace, pod, expected, params.has_desired_pods)
                .await
                .map_err(Error::Api)?
        }
    };
    let DryRunOutcome::Failed(failure) = outcome else {
        probes.record_admitted(key);
        return Ok(ProbeState {
            outcome: ProbeOutcome::Admitted,
            next_probe_in: None,
        });
    };
    let (outcome, is_transient) = params.after_failure(&failure, clock::now());
    Ok(ProbeState {
        outcome,
        next_probe_in: Some(probes.record_failure(key, failure, is_transient)),
    })
}

#[cfg(test)]
mod tests;
