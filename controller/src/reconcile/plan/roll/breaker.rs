//! Halts a rollout until a spec changes if replacements come up without the sidecar (ROLL-5).

use asya_shared::api::RolloutStatus;

use super::facts::{Rolling, RolloutFacts};
use crate::reconcile::model::bound_pods::{Lacks, OutdatedPod};

/// Consecutive replacements without the sidecar that halt the rollout.
const BARE_REPLACEMENTS: i32 = 2;

/// ROLL-5
pub(super) fn halted(facts: &RolloutFacts<'_>, before: Option<&RolloutStatus>) -> Option<Rolling> {
    let before = before?;
    let text = |what: &str| {
        Some(Rolling::Halt(format!(
            "no further pod is replaced: {what}; see why (status.pods), then change the actor or its target, or annotate the actor asya.sh/roll-now"
        )))
    };
    if before.halted {
        return text("earlier replacements came up without the sidecar, or none came");
    }
    (bare_in_a_row(facts.lacking, before) >= BARE_REPLACEMENTS)
        .then(|| text("replacements came up without the sidecar"))
        .flatten()
}

/// How many replacements in a row, up to the newest, came up without the sidecar since one was requested (ROLL-5).
/// Those that have been evicted since are counted in `before.bare`.
pub fn bare_in_a_row(lacking: &[OutdatedPod], before: &RolloutStatus) -> i32 {
    let Some(since) = before.since.as_ref().map(|it| it.0) else {
        return 0;
    };
    let is_replacement = |pod: &&OutdatedPod| {
        // Creation timestamps have a resolution of one second. Of pods created in the same second as the request, count
        // only those that the webhook has injected.
        let created = pod.created.as_ref().map(|it| it.0);
        let same = pod.lacks == Lacks::Given;
        created.is_some_and(|it| it > since || (same && it.as_second() == since.as_second()))
    };
    let mut after: Vec<_> = lacking.iter().filter(is_replacement).collect();
    after.sort_by_key(|pod| pod.created.as_ref().map(|it| it.0));
    let bare = after.iter().rev();
    let bare = bare.take_while(|pod| pod.lacks != Lacks::Today).count();
    match i32::try_from(bare).unwrap_or(i32::MAX) {
        0 => 0,
        bare => bare.saturating_add(before.bare),
    }
}
