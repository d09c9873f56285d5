//! Dry-runs pods with the sidecar: one probe verifies that the API server admits such pods at all, before the webhook
//! injects any (SAFE-1); another before each rollout step verifies that new pods are injected (ROLL-2).
//!
//! Asks the schedule here whether a dry run is due, because all actors share it: another actor's probe may just have
//! shown that the webhook is back. For the same reason, a rollout that a dry run blocks returns its slot at once.

use asya_process::clock;

use super::rollout::roll_out;
use crate::binding::dry_run::{self, DryRunOutcome, ExpectedSidecar, ProbeFailure};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::{
    BindingOutcome, HandoffChange, ProbeOutcome, ProbeState, RolloutOutcome,
};
use crate::reconcile::plan::probe::{
    FailedProbe, PlannedProbe, ProbeParams, ProbeStep, StepCheck, StepReadiness,
};
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
    handoff: Option<HandoffChange>,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let params = &planned_probe.params;
    match planned_probe.step {
        ProbeStep::Skip => {}
        ProbeStep::Wait(wait) => outcome.probe.next_probe_in = Some(wait),
        ProbeStep::Run => {
            let probed = run_probe(context, key, params, ProbePurpose::Admission);
            outcome.probe = Box::pin(probed).await?;
        }
    }
    let Some(PlannedRollout {
        decision,
        params: rollout_params,
    }) = rollout
    else {
        return Ok(());
    };
    let checked = check_step(context, key, params, &decision, &mut outcome.probe);
    let readiness = Box::pin(checked).await?;
    outcome.rollout = match readiness {
        StepReadiness::Ready => roll_out(context, actor, decision, rollout_params, handoff).await?,
        StepReadiness::Blocked {
            outcome: blocked,
            next_probe_in,
        } => {
            outcome.probe.next_probe_in = next_probe_in.or(outcome.probe.next_probe_in);
            blocked
        }
    };
    Ok(())
}

/// Returns whether the rollout may take this step, with a dry run if nothing else shows it.
async fn check_step(
    context: &Context,
    key: &Key,
    params: &ProbeParams,
    decision: &RolloutDecision,
    probe: &mut ProbeState,
) -> Result<StepReadiness, Error> {
    let next_probe = || context.bindings.probe_schedule.next_probe(key);
    let readiness = match params.before_step(decision, probe, &next_probe(), clock::now()) {
        StepCheck::Decided(readiness) => readiness,
        StepCheck::NeedsProbe => {
            *probe = run_probe(context, key, params, ProbePurpose::Rollout).await?;
            params.after_step_probe(probe, &next_probe(), clock::now())
        }
    };
    if let StepReadiness::Blocked { outcome, .. } = &readiness
        && *outcome != RolloutOutcome::NoPodsYet
    {
        // A rollout that cannot proceed must not block others.
        context.rollout_slots.release(key);
    }
    Ok(readiness)
}

/// Makes a dry run and records its result in the schedule.
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
            let expected = ExpectedSidecar {
                actor_uid: &params.uid,
                actor_hash: params.actor_hash.as_deref(),
            };
            dry_run::run(&context.client, &key.namespace, pod, expected, params.replaced)
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
    let FailedProbe {
        outcome,
        may_pass_soon,
    } = params.after_failure(&failure, clock::now());
    Ok(ProbeState {
        outcome,
        next_probe_in: Some(probes.record_failure(key, failure, may_pass_soon)),
    })
}

#[cfg(test)]
mod tests;
