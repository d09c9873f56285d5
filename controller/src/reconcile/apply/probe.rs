//! Makes dry runs of pods with the sidecar: one to learn whether the API server admits such pods at all, which opens the
//! webhook's gate (SAFE-1), and one before each step of a rollout, to see that pods get it by now (ROLL-2).

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

/// The webhook hears of a status, and the API server of the webhook's configuration, a moment later.
const SETTLES: Duration = Duration::from_secs(20);

/// A dry run asks one replica of the webhook. By then the others have read the status that opened the gate, too: a pod
/// that one of them leaves alone would be replaced once more.
const HEARD: Duration = Duration::from_secs(1);

/// Which of the two dry runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Marked as a probe: would a pod with the sidecar be admitted?
    Gate,
    /// Like any pod of the target: would it get the sidecar?
    Rollout,
}

/// Makes the dry run that is due. Answers what is to become of the rollout that is planned: it goes on only where pods get
/// the sidecar by now.
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
        // What was asked for before is not forgotten: a gate that opens and closes must not restart pods each time (ROLL-5).
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
        // Pods get it once the webhook has read this pass's status.
        (Probed::Admitted, Some(Gate::Unproved | Gate::Refused(_))) => Some(begins(HEARD)),
        _ => match unheard(observed, Timestamp::now()) {
            Some(wait) => Some(begins(wait)),
            None => before_step(context, observed, ensured).await?,
        },
    };
    if waits.as_ref().is_some_and(|it| *it != Rolled::Proved) {
        // Others need not wait for what cannot go on.
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

/// How long a replica of the webhook may still not have read what status says of the gate.
fn unheard(observed: &Observed, now: Timestamp) -> Option<Duration> {
    let since = observed.previous.injection.as_ref()?.since.as_ref()?;
    let age = Duration::try_from(now.duration_since(since.0)).ok()?;
    // Status tells whole seconds.
    let left = (HEARD + Duration::from_secs(1)).checked_sub(age)?;
    (!left.is_zero()).then_some(left)
}

/// What keeps the next step of a rollout from giving a pod the sidecar; `None`: nothing does.
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

/// As the last dry run failed.
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
    // The first refusal may be of a pod without the limits that status has just asked for.
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

/// Whether the target has as many pods as it asks for, as far as it says so.
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

/// Whether the webhook may not have heard of what status says.
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
