//! Halts a rollout if replacements start without the sidecar, until a spec changes or the user asks to continue
//! (ROLL-5).

use asya_shared::api::RolloutStatus;

use super::inputs::{RolloutDecision, RolloutInputs};
use crate::reconcile::model::rollout::consecutive_uninjected;

/// Consecutive replacements without the sidecar that halt the rollout.
const MAX_UNINJECTED_REPLACEMENTS: i32 = 2;

/// Halts a rollout whose replacements start without the sidecar: further ones would disrupt the model for nothing
/// (ROLL-5).
pub(super) fn halted(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> Option<RolloutDecision> {
    let previous = previous?;
    let halt = |cause: &str| {
        Some(RolloutDecision::Halted(format!(
            "no more pods are replaced: {cause}; check the reasons in status.pods, then change the actor or its \
             target, or annotate the actor with asya.sh/roll-now"
        )))
    };
    if previous.halted {
        return halt("earlier replacements started without the sidecar, or did not start at all");
    }
    (consecutive_uninjected(inputs.outdated, previous) >= MAX_UNINJECTED_REPLACEMENTS)
        .then(|| halt("replacements started without the sidecar"))
        .flatten()
}
