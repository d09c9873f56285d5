//! Dry-runs pods with the sidecar: one probe learns whether the API server admits such pods at all, which opens the
//! webhook's gate (SAFE-1); another before each rollout step checks that new pods are injected (ROLL-2).

use asya_shared::inject::bound::Gate;
use k8s_openapi::jiff::Timestamp;

use crate::binding::probes::Failure;
use crate::binding::specimen::{self, Shown};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::injection::Probed;
use crate::reconcile::model::outcome::{Ensured, ProbeState, Rolled};
use crate::reconcile::plan::probe::{ProbeInputs, Probing, StepGate};
use crate::reconcile::plan::roll::facts::Rolling;
use crate::record::Key;

/// Purpose of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Marked as a probe: would a pod with the sidecar be admitted?
    Gate,
    /// Like any pod of the target: would it get the sidecar?
    Rollout,
}

/// Makes the dry run that is due. Returns what becomes of the planned rollout, which proceeds only if new pods get the
/// sidecar.
pub(super) async fn probe(
    context: &Context,
    key: &Key,
    (inputs, probing, rolling): (&ProbeInputs, Probing, Option<Rolling>),
    ensured: &mut Ensured,
) -> Result<Option<Result<Rolling, Rolled>>, Error> {
    match probing {
        Probing::Rest => {}
        Probing::Wait(wait) => ensured.probe.again = Some(wait),
        Probing::Ask => *ensured.probe = ask(context, key, inputs, Of::Gate).await?,
    }
    let Some(rolling) = rolling else {
        return Ok(None);
    };
    let turn = || context.bindings.probes.turn(key);
    let mut gate = inputs.before_step(&rolling, (&ensured.probe, &turn()), Timestamp::now());
    if gate == StepGate::Probe {
        *ensured.probe = ask(context, key, inputs, Of::Rollout).await?;
        gate = inputs.after_step_probe((&ensured.probe, &turn()), Timestamp::now());
    }
    let StepGate::Closed(outcome, again) = gate else {
        return Ok(Some(Ok(rolling)));
    };
    ensured.probe.again = again.or(ensured.probe.again);
    if outcome != Rolled::Proved {
        // A rollout that cannot proceed must not block others.
        context.rollout_slots.release(key);
    }
    Ok(Some(Err(outcome)))
}

async fn ask(
    context: &Context,
    key: &Key,
    inputs: &ProbeInputs,
    of: Of,
) -> Result<ProbeState, Error> {
    let probes = &context.bindings.probes;
    let shown = match inputs.pod.as_deref() {
        None => Shown::LeftAlone(
            "no pod can be made up that would be one of the target's, so nothing shows that new ones get the sidecar; restart its pods yourself"
                .to_owned(),
        ),
        Some(pod) => {
            let pod = match of {
                Of::Gate => &specimen::marked(pod, &inputs.uid),
                Of::Rollout => pod,
            };
            let part = (&*inputs.uid, inputs.part.as_deref());
            specimen::ask(&context.client, &key.namespace, pod, part, inputs.complete)
                .await
                .map_err(Error::Api)?
        }
    };
    let settles = inputs.settles(Timestamp::now());
    // The first refusal may be of a pod that lacks the limits this status has only just requested.
    let is_first = !matches!(inputs.gate, Some(Gate::Refused(_)));
    let (outcome, failure, settles) = match shown {
        Shown::Admitted => {
            probes.admitted(key);
            return Ok(ProbeState {
                outcome: Probed::Admitted,
                again: None,
            });
        }
        Shown::Unasked(why) => (
            Probed::NotInjected(why.clone()),
            Failure::Unasked(why),
            settles,
        ),
        Shown::LeftAlone(why) => (
            Probed::NotInjected(why.clone()),
            Failure::LeftAlone(why),
            settles,
        ),
        Shown::Refused(why) => (
            Probed::Refused(why.clone()),
            Failure::Refused(why),
            settles && is_first,
        ),
    };
    Ok(ProbeState {
        outcome,
        again: Some(probes.failed(key, failure, settles)),
    })
}

#[cfg(test)]
mod tests;
