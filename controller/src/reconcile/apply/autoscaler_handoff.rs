//! Sets or gives up the autoscaler handoff annotation (SO-5).
//!
//! Reads whether the object carries the rollout annotation: an apply that does not list it would give it up.

use asya_shared::names::manager;
use asya_shared::resolve::ObjectRef;

use super::contention::{self, FieldWrite};
use super::foreign_fields::{apply, apply_body, read_body};
use crate::context::Context;
use crate::fault::{ConflictingField, Error, StepError};
use crate::reconcile::model::outcome::{BindingOutcome, HandoffChange};
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::plan::autoscaler_handoff::{HandoffStep, HandoffWrite, after_rollout};
use crate::reconcile::plan::contested_fields::ContestedFields;

/// Path of the annotations of the object itself.
const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];

/// Sets or gives up the annotation, and records contention over it (CONF-3).
pub(super) async fn write_handoff(
    context: &Context,
    namespace: &str,
    step: HandoffStep,
    fields: &ContestedFields,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    if let HandoffStep::Blocked(blocker) = &step {
        outcome.contention.recheck_within(blocker.recheck_after());
        return Ok(());
    }
    let field = &fields.handoff;
    let written = match (step.change(), field.owner()) {
        (Some(change), Some(owner)) => write(context, namespace, owner, change, outcome).await?,
        _ => FieldWrite::Skipped,
    };
    match (step, written) {
        // The rollout annotation is the only one in the body that another manager could own.
        (HandoffStep::Remove, FieldWrite::Conflict(_)) => Err(Error::Stale("an object")),
        (HandoffStep::Remove | HandoffStep::Blocked(_), _) => Ok(()),
        (HandoffStep::Set(decision), written) => {
            contention::record(context, field, fields, decision, written, outcome).await
        }
    }
}

/// Writes the annotation unless the rollout has done so.
async fn write(
    context: &Context,
    namespace: &str,
    owner: &ObjectRef,
    change: HandoffChange,
    outcome: &mut BindingOutcome,
) -> Result<FieldWrite, Error> {
    let written = match after_rollout(&outcome.rollout) {
        HandoffWrite::WithRollout => Ok(None),
        HandoffWrite::Separately => apply_handoff(context, namespace, owner, change).await,
        HandoffWrite::Skipped => return Ok(FieldWrite::Skipped),
    };
    match written {
        Ok(None) => {
            outcome.contention.handoff = Some(change);
            Ok(FieldWrite::Written)
        }
        Ok(Some(conflict)) => Ok(FieldWrite::Conflict(conflict)),
        Err(failed) => {
            let fault = failed.fault()?;
            if let Some(scaled) = &mut outcome.common.scaling {
                scaled.fault = scaled.fault.take().or(Some(fault));
            }
            Ok(FieldWrite::Skipped)
        }
    }
}

/// Sets or gives up the annotation while no rollout is due, and keeps the rollout annotation. Returns the field that
/// another manager owns, if that prevents the write (CONF-7).
async fn apply_handoff(
    context: &Context,
    namespace: &str,
    owner: &ObjectRef,
    change: HandoffChange,
) -> Result<Option<ConflictingField>, StepError> {
    let Some(existing) = read_body(context, namespace, owner).await? else {
        return Ok(None);
    };
    let roll = TargetObject::from_body(owner, &existing, Some(&ANNOTATIONS)).roll_value;
    let sets = change == HandoffChange::Set;
    let body = apply_body(owner, &ANNOTATIONS, roll.as_deref(), sets);
    let applied = apply(context, namespace, owner, manager::OWNER, &body).await;
    let conflict = applied
        .err()
        .map(|error| error.into_conflict(&owner.to_string()));
    conflict.transpose()
}
