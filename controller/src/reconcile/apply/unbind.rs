//! Removes the sidecars of an actor being deleted from the pods of its target, one step at a time.

use super::parent::{self, Ours};
use super::roll::{evict, put};
use super::template;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::Specs;
use crate::reconcile::model::outcome::{Outcome, Rolled};
use crate::reconcile::plan::unbind::{UNBOUND, Unbind, UnbindInputs};
use crate::record::{ActorRecord, Key};
use crate::telemetry::events::EventReason;

/// Executes the step. Returns what blocks the deletion; `None` once no pod needs to lose the sidecar.
pub(super) async fn unbind(
    context: &Context,
    actor: &ActorRecord,
    (step, inputs): (&Unbind, &UnbindInputs),
) -> Result<Option<Outcome>, Error> {
    let key = &actor.metadata.key;
    let (rolled, written) = match step {
        Unbind::Done => {
            context.rollout_slots.forget(key);
            return Ok(None);
        }
        Unbind::Unknown => return Ok(Some(Outcome::Unknown(Requeue::After(AGAIN)))),
        Unbind::Wait(wait) => return Ok(Some(held(None, Requeue::After(*wait), false))),
        Unbind::Stalled(text, wait) => {
            if !inputs.announced {
                context.events.tell(actor, EventReason::RolloutHalted, text);
            }
            return Ok(Some(blocked(text, Requeue::After(*wait))));
        }
        Unbind::Blocked(text, wait) => return Ok(Some(blocked(text, Requeue::After(*wait)))),
        Unbind::Release => (release(context, key, inputs, None).await?, true),
        Unbind::Change => (release(context, key, inputs, Some(UNBOUND)).await?, true),
        Unbind::Evict(pod) => {
            let evicted = evict(context, key, pod).await?;
            let written = matches!(evicted, Rolled::Asked(..));
            (Some(evicted), written)
        }
    };
    Ok(Some(match rolled {
        Some(Rolled::Waits(_, text, retry)) => blocked(&text, retry),
        Some(Rolled::Lost(loss)) => {
            let rival = loss.rival.unwrap_or_default();
            let text = format!("{}: {} belongs to {rival}", loss.object, loss.field);
            blocked(&text, Requeue::After(REFUSED))
        }
        _ => held(None, Requeue::After(AGAIN), written),
    }))
}

/// Gives up everything that we wrote to the target, or changes the value of our annotation to `value`.
async fn release(
    context: &Context,
    actor: &Key,
    inputs: &UnbindInputs,
    value: Option<&str>,
) -> Result<Option<Rolled>, Error> {
    let namespace = &actor.namespace;
    for object in &inputs.left {
        parent::release_roll(context, namespace, object).await?;
    }
    if let Some(workload) = &inputs.template {
        template::release(context, actor, workload).await?;
    }
    let Some(roll) = &inputs.annotations else {
        return Ok(None);
    };
    let ours = Ours {
        roll: value,
        claim: Some(false),
        claim_owner: None,
    };
    put(context, namespace, (roll, ours), Specs::default()).await
}

/// Requeue interval: no watch reports that another field manager gave up a field.
const REFUSED: std::time::Duration = std::time::Duration::from_secs(10);
/// Requeue interval until the watches show our write or the current state.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// BIND-44
fn blocked(text: &str, retry: Requeue) -> Outcome {
    let fault = Fault {
        reason: Reason::UnbindBlocked,
        message: format!(
            "the sidecar is not out of the target yet: {text}; annotate the actor asya.sh/skip-unbind: \"true\" to leave them as they are"
        ),
        retry,
    };
    held(Some(fault), retry, false)
}

fn held(fault: Option<Fault>, retry: Requeue, released: bool) -> Outcome {
    Outcome::Deleting {
        fault,
        deleted: Vec::new(),
        retry,
        released,
    }
}
