//! Writes or gives up the claim that tells a target's owner that the queue scales it (SO-5).

use asya_shared::resolve::ObjectRef;

use super::parent;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::claim::{ClaimWrite, after_rollout};

/// Writes the claim after the rollout that may already have written it. Returns whether either did.
pub(super) async fn write(
    context: &Context,
    namespace: &str,
    (owner, is_made): (&ObjectRef, bool),
    ensured: &mut Ensured,
) -> Result<bool, Error> {
    let written = match after_rollout(&ensured.rolled) {
        ClaimWrite::WithRollout => Ok(()),
        ClaimWrite::Alone => parent::claim(context, namespace, owner, is_made).await,
        ClaimWrite::Not => return Ok(false),
    };
    if let Err(refused) = written {
        let fault = refused.fault()?;
        if let Some(scaled) = &mut ensured.scaling {
            scaled.fault = scaled.fault.take().or(Some(fault));
        }
        return Ok(false);
    }
    ensured.contests.claimed = Some(is_made);
    Ok(true)
}
