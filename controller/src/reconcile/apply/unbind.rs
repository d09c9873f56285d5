//! Removes the sidecars of an actor being deleted from the pods of its target, one step at a time.

use super::parent::{self, Ours};
use super::roll::{evict, put};
use super::template;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::announced::is_announced;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Outcome, Rolled};
use crate::reconcile::plan::unbind::{UNBOUND, Unbind};
use crate::telemetry::events::EventReason;

/// Executes the plan. Returns what blocks the deletion; `None` once no pod needs to lose the sidecar.
pub(super) async fn unbind(
    context: &Context,
    observed: &Observed,
    plan: Unbind,
) -> Result<Option<Outcome>, Error> {
    let seen = observed
        .binding
        .as_ref()
        .and_then(|it| it.unbinding.as_ref());
    let roll = seen.and_then(|seen| seen.roll.as_ref());
    let live = || seen.into_iter().flat_map(|seen| &seen.live);
    let templated = live().find(|it| it.templated);
    let annotated = live().any(|it| it.value.is_some() || it.claimed);
    let value = (plan == Unbind::Change).then_some(UNBOUND);
    let mut written = matches!(plan, Unbind::Release | Unbind::Change);
    if written {
        for object in seen.iter().flat_map(|seen| &seen.left) {
            parent::release_roll(context, observed, object).await?;
        }
    }
    let rolled = match plan {
        Unbind::Done => {
            context.rollout_slots.forget(observed.key());
            return Ok(None);
        }
        Unbind::Unknown => return Ok(Some(Outcome::Unknown(Requeue::After(AGAIN)))),
        Unbind::Wait(wait) => return Ok(Some(held(None, Requeue::After(wait), false))),
        Unbind::Stalled(text, wait) => {
            if !is_announced(observed, Reason::UnbindBlocked) {
                context
                    .events
                    .tell(&observed.actor, EventReason::RolloutHalted, &text);
            }
            return Ok(Some(blocked(&text, Requeue::After(wait))));
        }
        Unbind::Blocked(text, wait) => return Ok(Some(blocked(&text, Requeue::After(wait)))),
        Unbind::Release if templated.is_some() => {
            if let Some(live) = templated {
                template::release(context, observed, &live.object).await?;
            }
            match roll.filter(|_| annotated) {
                Some(roll) => {
                    let ours = Ours {
                        roll: None,
                        claim: Some(false),
                    };
                    put(context, observed, roll, ours).await?
                }
                None => None,
            }
        }
        Unbind::Release | Unbind::Change => match roll {
            Some(roll) => {
                let ours = Ours {
                    roll: value,
                    claim: Some(false),
                };
                put(context, observed, roll, ours).await?
            }
            None => None,
        },
        Unbind::Evict(pod) => {
            let evicted = evict(context, observed, &pod).await?;
            written = matches!(evicted, Rolled::Asked(..));
            Some(evicted)
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
