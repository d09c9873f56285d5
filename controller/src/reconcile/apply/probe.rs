//! Dry-runs pods with the sidecar: one probe learns whether the API server admits such pods at all, which opens the
//! webhook's gate (SAFE-1); another before each rollout step checks that new pods are injected (ROLL-2).

use std::time::Duration;

use asya_shared::inject::bound::Gate;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::binding::probes::Failure;
use crate::binding::specimen::{self, Shown};
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue};
use crate::reconcile::injection::Probed;
use crate::reconcile::model::bound_pods::{BoundPods, actor_part};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, ProbeState, Rolled};
use crate::reconcile::plan::probe::Probing;
use crate::reconcile::plan::roll::facts::{Act, Rolling};

/// How long the webhook may lag behind a status, and the API server behind the webhook's configuration.
const SETTLES: Duration = Duration::from_secs(20);

/// A dry run reaches one replica of the webhook. After this time the others have also read the status that opened the
/// gate; a pod that one of them does not inject would have to be replaced again.
const HEARD: Duration = Duration::from_secs(1);

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
    observed: &Observed,
    (probing, rolling): (Probing, Option<Rolling>),
    ensured: &mut Ensured,
) -> Result<Option<Result<Rolling, Rolled>>, Error> {
    match probing {
        Probing::Rest => {}
        Probing::Wait(wait) => ensured.probe.again = Some(wait),
        Probing::Ask => ask(context, observed, Of::Gate, ensured).await?,
    }
    let before = observed.gate();
    let closed = match &ensured.probe.outcome {
        Probed::Refused(_) => true,
        Probed::Admitted => false,
        Probed::Untried | Probed::NotInjected(_) => matches!(before, Some(Gate::Refused(_))),
    };
    let Some(rolling) = rolling else {
        return Ok(None);
    };
    if closed {
        // Keep what earlier steps recorded: a gate that opens and closes must not restart pods each time (ROLL-5).
        context.rollout_slots.release(observed.key());
        return Ok(Some(Err(Rolled::Untouched)));
    }
    let Rolling::Act(act) = &rolling else {
        return Ok(Some(Ok(rolling)));
    };
    if !context.installation.webhook {
        return Ok(Some(Ok(rolling)));
    }
    let waits = match (&ensured.probe.outcome, before) {
        (Probed::Admitted, _) if *act == Act::Prove => Some(Rolled::Proved),
        (Probed::NotInjected(_), _) | (Probed::Untried, Some(Gate::Unproved)) => {
            Some(failed(context, observed, ensured))
        }
        // Pods are injected once the webhook has read the status of this reconcile.
        (Probed::Admitted, Some(Gate::Unproved | Gate::Refused(_))) => Some(begins(HEARD)),
        _ => match unheard(observed, Timestamp::now()) {
            Some(wait) => Some(begins(wait)),
            None => before_step(context, observed, ensured).await?,
        },
    };
    if waits.as_ref().is_some_and(|it| *it != Rolled::Proved) {
        // A rollout that cannot proceed must not block others.
        context.rollout_slots.release(observed.key());
    }
    Ok(Some(waits.map_or(Ok(rolling), Err)))
}

fn begins(wait: Duration) -> Rolled {
    let text = "pods with the sidecar are admitted; replacing those without it begins in a moment";
    Rolled::Waits(
        Reason::RolloutInProgress,
        text.to_owned(),
        Requeue::After(wait),
    )
}

/// Returns how long a replica of the webhook may still not have read the gate from the status.
fn unheard(observed: &Observed, now: Timestamp) -> Option<Duration> {
    let since = observed.previous.injection.as_ref()?.since.as_ref()?;
    let age = Duration::try_from(now.duration_since(since.0)).ok()?;
    // Timestamps in the status have second precision.
    let left = (HEARD + Duration::from_secs(1)).checked_sub(age)?;
    (!left.is_zero()).then_some(left)
}

/// Returns why the next rollout step would not give a pod the sidecar; `None` if nothing prevents it.
async fn before_step(
    context: &Context,
    observed: &Observed,
    ensured: &mut Ensured,
) -> Result<Option<Rolled>, Error> {
    let turn = context.bindings.probes.turn(observed.key());
    if let (Some(wait), Some(_)) = (turn.wait, turn.failed) {
        ensured.probe.again = Some(wait);
        return Ok(Some(failed(context, observed, ensured)));
    }
    ask(context, observed, Of::Rollout, ensured).await?;
    Ok(match &ensured.probe.outcome {
        Probed::Untried | Probed::Admitted => None,
        Probed::NotInjected(_) => Some(failed(context, observed, ensured)),
        Probed::Refused(_) => Some(Rolled::Untouched),
    })
}

/// Explains from the last failed dry run why the rollout waits.
fn failed(context: &Context, observed: &Observed, ensured: &Ensured) -> Rolled {
    let turn = context.bindings.probes.turn(observed.key());
    let why = match (&ensured.probe.outcome, &turn.failed) {
        (Probed::NotInjected(why), _)
        | (_, Some(Failure::Unasked(why) | Failure::LeftAlone(why))) => why.clone(),
        _ => "no dry run has shown yet that new ones get the sidecar".to_owned(),
    };
    let waits = match turn.failed {
        Some(Failure::Unasked(_)) => {
            "; waiting for the webhook, which is tried again every few seconds"
        }
        _ => "",
    };
    let text = format!("no pod is replaced: a new one would have no sidecar: {why}{waits}");
    let reason = if settles(observed, Timestamp::now()) {
        Reason::PodsNotInjected
    } else {
        Reason::ProbeFailed
    };
    let again = ensured
        .probe
        .again
        .map_or(Requeue::SlowBackoff, Requeue::After);
    Rolled::Waits(reason, text, again)
}

async fn ask(
    context: &Context,
    observed: &Observed,
    of: Of,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let (key, probes) = (observed.key(), &context.bindings.probes);
    let pod = observed.probe_pod();
    let pod = pod.and_then(|pod| serde_json::from_value::<Pod>(pod.clone()).ok());
    let uid = &observed.actor.metadata.uid;
    let wanted = observed.bound().and_then(|it| it.injected_hash.as_deref());
    let shown = match pod {
        None => Shown::LeftAlone(
            "no pod can be made up that would be one of the target's, so nothing shows that new ones get the sidecar; restart its pods yourself"
                .to_owned(),
        ),
        Some(pod) => {
            let pod = match of {
                Of::Gate => specimen::marked(&pod, uid),
                Of::Rollout => pod,
            };
            let part = (&**uid, actor_part(wanted));
            specimen::ask(&context.client, &key.namespace, &pod, part, is_complete(observed))
                .await
                .map_err(Error::Api)?
        }
    };
    let settles = settles(observed, Timestamp::now());
    // The first refusal may be of a pod that lacks the limits this status has only just requested.
    let is_first = !matches!(observed.gate(), Some(Gate::Refused(_)));
    let (outcome, again) = match shown {
        Shown::Admitted => {
            probes.admitted(key);
            (Probed::Admitted, None)
        }
        Shown::Unasked(why) => {
            let failure = Failure::Unasked(why.clone());
            let wait = probes.failed(key, failure, settles);
            (Probed::NotInjected(why), Some(wait))
        }
        Shown::LeftAlone(why) => {
            let failure = Failure::LeftAlone(why.clone());
            let wait = probes.failed(key, failure, settles);
            (Probed::NotInjected(why), Some(wait))
        }
        Shown::Refused(why) => {
            let failure = Failure::Refused(why.clone());
            let wait = probes.failed(key, failure, settles && is_first);
            (Probed::Refused(why), Some(wait))
        }
    };
    *ensured.probe = ProbeState { outcome, again };
    Ok(())
}

/// Returns whether the target has all the pods it asks for, as far as that number is known.
pub(super) fn is_complete(observed: &Observed) -> bool {
    let asked_for = observed.resolved().and_then(|it| it.replicas);
    let pods = observed.binding.as_ref().and_then(|it| it.pods.as_ref());
    let seen = observed.rollout().map(|seen| seen.counted.pods.matched);
    let seen = seen.or_else(|| pods.map(BoundPods::staying));
    let lacks = asked_for
        .zip(seen)
        .is_some_and(|(asked_for, seen)| seen < asked_for);
    !lacks
}

/// Returns whether the webhook may not have read the latest status yet.
fn settles(observed: &Observed, now: Timestamp) -> bool {
    let previous = &observed.previous;
    let injection = previous.injection.as_ref();
    let since = [
        previous.bound_since.as_ref(),
        injection.and_then(|it| it.since.as_ref()),
    ];
    let last = since.into_iter().flatten().map(|time| time.0).max();
    last.is_some_and(|last| now.duration_since(last).unsigned_abs() < SETTLES)
}

#[cfg(test)]
mod tests;
