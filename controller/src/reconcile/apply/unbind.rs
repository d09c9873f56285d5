//! Removes the sidecars of an actor being deleted from the pods of its target, one step at a time.

use std::time::Duration;

use super::evict::evict;
use super::foreign_fields::{self, TargetAnnotations, write_annotations};
use super::rollout::change_slot;
use crate::cluster::rollouts::FALLBACK_REQUEUE;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::model::outcome::{AWAITS_SLOT, HandoffChange, Outcome, RolloutOutcome};
use crate::reconcile::model::rollout::UNBIND_MARKER;
use crate::reconcile::plan::unbind::{UnbindParams, UnbindStep};
use crate::record::{ActorRecord, Key};
use crate::telemetry::events::EventReason;

/// Requeue interval while pods are being replaced.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
/// Requeue interval while no watch reports the end of a wait, such as for a disruption budget that allows disruptions
/// again.
const BLOCKED_RECHECK: Duration = Duration::from_secs(10);
/// Requeue interval: no watch reports that another field manager gave up a field.
const CONFLICT_RETRY: Duration = Duration::from_secs(10);
/// Requeue interval until the caches reflect our write, or have synced.
const CACHE_DELAY: Duration = Duration::from_secs(1);

/// Executes the step. Returns what blocks the deletion; `None` once no sidecar is left to remove.
pub(super) async fn unbind(
    context: &Context,
    actor: &ActorRecord,
    step: &UnbindStep,
    params: &UnbindParams,
) -> Result<Option<Outcome>, Error> {
    let key = &actor.metadata.key;
    if let Some(change) = params.slot {
        change_slot(context, key, change);
    }
    let (rolled, changed_target) = match step {
        UnbindStep::Done => return Ok(None),
        UnbindStep::Unknown => {
            return Ok(Some(Outcome::DeletionUnknown(Requeue::After(CACHE_DELAY))));
        }
        UnbindStep::InProgress => {
            let requeue = Requeue::After(PROGRESS_INTERVAL);
            return Ok(Some(still_deleting(None, requeue, false)));
        }
        UnbindStep::Stalled(text) => {
            if !params.reported {
                context
                    .events
                    .publish(actor, EventReason::RolloutHalted, text);
            }
            return Ok(Some(blocked(text, Requeue::After(BLOCKED_RECHECK))));
        }
        UnbindStep::AwaitSlot => {
            return Ok(Some(blocked(AWAITS_SLOT, Requeue::After(FALLBACK_REQUEUE))));
        }
        UnbindStep::Blocked(text) => {
            return Ok(Some(blocked(text, Requeue::After(BLOCKED_RECHECK))));
        }
        UnbindStep::GiveUp => (give_up(context, key, params, None).await?, true),
        UnbindStep::ChangeValue => (
            give_up(context, key, params, Some(UNBIND_MARKER)).await?,
            true,
        ),
        // Not recorded as the start of unbinding: our fields have yet to be given up.
        UnbindStep::EvictUnready(pod) => (
            Some(evict(context, key, pod, &params.availability).await?),
            false,
        ),
        UnbindStep::Evict(pod) => {
            let evicted = evict(context, key, pod, &params.availability).await?;
            let changed_target = matches!(evicted, RolloutOutcome::Requested(_));
            (Some(evicted), changed_target)
        }
    };
    Ok(Some(match rolled {
        Some(RolloutOutcome::Waiting(fault)) => blocked(&fault.message, fault.requeue),
        Some(RolloutOutcome::Conflict(conflict)) => {
            context.rollout_slots.release(key);
            let manager = conflict.manager.unwrap_or_default();
            let text = format!("{}: {manager} owns {}", conflict.object, conflict.field);
            blocked(&text, Requeue::After(CONFLICT_RETRY))
        }
        _ => still_deleting(None, Requeue::After(CACHE_DELAY), changed_target),
    }))
}

/// Gives up everything that we wrote to the target, or changes our annotation to `value`.
async fn give_up(
    context: &Context,
    actor: &Key,
    params: &UnbindParams,
    value: Option<&str>,
) -> Result<Option<RolloutOutcome>, Error> {
    let namespace = &actor.namespace;
    for object in &params.stale_objects {
        foreign_fields::remove_roll_annotation(context, namespace, object).await?;
    }
    if let Some(workload) = &params.template {
        foreign_fields::give_up_template(context, actor, workload).await?;
    }
    let Some(roll) = &params.annotations else {
        return Ok(None);
    };
    let annotations = TargetAnnotations {
        roll_value: value,
        handoff: Some(HandoffChange::Remove),
        handoff_object: None,
    };
    write_annotations(
        context,
        namespace,
        roll,
        annotations,
        SpecRevision::default(),
    )
    .await
}

/// The deletion waits and the queue stays, because a sidecar without a queue fails its pod (BIND-44).
fn blocked(text: &str, requeue: Requeue) -> Outcome {
    let fault = Fault {
        reason: Reason::UnbindBlocked,
        message: format!(
            "the sidecar has not been removed from the target yet: {text}; annotate the actor with \
             asya.sh/skip-unbind: \"true\" to leave the pods as they are"
        ),
        requeue,
    };
    still_deleting(Some(fault), requeue, false)
}

fn still_deleting(fault: Option<Fault>, requeue: Requeue, changed_target: bool) -> Outcome {
    Outcome::Deleting {
        fault,
        deleted: Vec::new(),
        requeue,
        changed_target,
    }
}
