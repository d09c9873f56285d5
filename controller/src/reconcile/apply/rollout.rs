//! Executes a rollout step, after a dry run has shown that replacement pods get the sidecar (ROLL-2, ROLL-3, ROLL-4).
//!
//! Returns the rollout slot here if a write is refused: all actors share the slots, and another one may be waiting.

use asya_shared::names::annotation;

use super::contention::read_manager;
use super::evict::evict;
use super::foreign_fields::{TargetAnnotations, roll_path, write_annotations};
use crate::cluster::rollouts::FALLBACK_REQUEUE;
use crate::context::Context;
use crate::fault::{Error, Reason, Requeue};
use crate::reconcile::contention::field_manager::PathElement;
use crate::reconcile::contention::history::FieldConflict;
use crate::reconcile::model::outcome::{HandoffChange, ReplacementMethod, RolloutOutcome};
use crate::reconcile::plan::rollout::inputs::{AnnotationConflict, RolloutAction, RolloutDecision};
use crate::reconcile::plan::rollout::params::{RolloutParams, SlotChange, annotated_objects};
use crate::record::{ActorRecord, Key};

/// Executes a rollout decision.
pub(super) async fn roll_out(
    context: &Context,
    actor: &ActorRecord,
    decision: RolloutDecision,
    params: RolloutParams,
    handoff: Option<HandoffChange>,
) -> Result<RolloutOutcome, Error> {
    let key = &actor.metadata.key;
    if let Some(change) = params.slot {
        change_slot(context, key, change);
    }
    if let Some(event) = &params.event {
        context.events.publish(actor, event.reason, &event.message);
    }
    match decision {
        RolloutDecision::NotNeeded => Ok(RolloutOutcome::NotNeeded),
        RolloutDecision::InProgress => Ok(RolloutOutcome::in_progress()),
        RolloutDecision::Wait {
            message,
            requeue_after,
        } => Ok(RolloutOutcome::waiting(
            Reason::RolloutWaiting,
            message,
            Requeue::After(requeue_after),
        )),
        RolloutDecision::AwaitSlot => Ok(RolloutOutcome::await_slot(FALLBACK_REQUEUE)),
        RolloutDecision::Halted(text) => Ok(RolloutOutcome::Halted(text)),
        RolloutDecision::Stalled(text) => Ok(RolloutOutcome::Stalled(text)),
        RolloutDecision::Yield => Ok(RolloutOutcome::Yielded),
        RolloutDecision::RecordConflict(conflict) => {
            let conflict = annotation_conflict(context, &key.namespace, conflict, params);
            Ok(RolloutOutcome::Conflict(conflict.await?))
        }
        RolloutDecision::Act(RolloutAction::VerifyInjection) => Ok(RolloutOutcome::NoPodsYet),
        RolloutDecision::Act(RolloutAction::Annotate(value)) => {
            let annotations = TargetAnnotations {
                roll_value: Some(&value),
                handoff,
                handoff_object: params.handoff_object.as_ref(),
            };
            let namespace = &key.namespace;
            let roll = &params.roll;
            let blocked =
                write_annotations(context, namespace, roll, annotations, params.revision).await?;
            if blocked.is_some() {
                context.rollout_slots.release(key);
            }
            Ok(blocked.unwrap_or(RolloutOutcome::Requested(ReplacementMethod::Annotation)))
        }
        RolloutDecision::Act(RolloutAction::Evict(pod)) => {
            evict(context, key, &pod, &params.availability).await
        }
    }
}

pub(super) fn change_slot(context: &Context, key: &Key, change: SlotChange) {
    let slots = &context.rollout_slots;
    match change {
        SlotChange::ReleaseAndReset => slots.forget(key),
        SlotChange::Release => slots.release(key),
        SlotChange::Wait => slots.wait(key),
        SlotChange::Acquire(until) => slots.acquire(key, until),
    }
}

/// Describes the conflict, with the manager that changed the annotation (CONF-8).
async fn annotation_conflict(
    context: &Context,
    namespace: &str,
    conflict: AnnotationConflict,
    params: RolloutParams,
) -> Result<FieldConflict, Error> {
    let AnnotationConflict { object, yields } = conflict;
    let path = annotated_objects(&params.roll)
        .first()
        .map(|annotated| annotated.path);
    let path = path.unwrap_or_default();
    let segments = PathElement::path(&[path, &[annotation::ROLL]].concat());
    Ok(FieldConflict {
        manager: read_manager(context, namespace, &object, &segments).await?,
        field: roll_path(path),
        object: object.to_string(),
        revision: params.revision,
        yields,
    })
}
