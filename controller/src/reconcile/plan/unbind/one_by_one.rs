//! Evictions during unbinding: which pod is next, and what its eviction waits for (SAFE-11 to SAFE-13).

use super::inputs::{UnbindInputs, UnbindStep};
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::target_pods::PodToReplace;

/// Replaces pods that are not ready, one at a time, if the controller would begin with a ready one (SAFE-13). Their
/// replacements get no sidecar, since the actor is being deleted.
pub(super) fn unready_first(inputs: &UnbindInputs<'_>) -> Option<UnbindStep> {
    // A pod template with the sidecar would give it to replacements, too. A budget that these very pods may have
    // exhausted would refuse each eviction.
    if inputs.template_has_sidecar() || inputs.limits.blocking_pdb.is_some() {
        return None;
    }
    let object = inputs.objects.iter().find(|it| it.may_lose_ready_pod())?;
    let availability = inputs.availability?;
    let evicting = inputs.evicting(availability);
    let is_terminating = inputs.has_terminating || availability.has_terminating;
    if let Some(pod) = inputs.unready_candidate(&evicting)
        && !is_terminating
    {
        return Some(UnbindStep::EvictUnready(pod.clone()));
    }
    let blocker = evicting.blocker();
    let (why, is_overdue) = if is_terminating {
        ("a pod has been terminating", inputs.is_overdue())
    } else if let Some(blocker) = &blocker {
        (&*blocker.text, blocker.readiness_overdue)
    } else {
        return Some(UnbindStep::InProgress);
    };
    let object = &object.object;
    Some(if is_overdue {
        UnbindStep::Stalled(format!(
            "{why} for {}, and {object} would have a ready pod replaced as well; make all of its pods ready, or scale \
             it down; then it continues",
            evicting.limit_text()
        ))
    } else if is_terminating {
        UnbindStep::InProgress
    } else {
        UnbindStep::Blocked(format!(
            "{why}, and {object} would have a ready pod replaced as well; waiting until all are ready"
        ))
    })
}

/// Evicts an unready pod at once: its replacement, without the sidecar, cannot be worse. Evicts a ready pod only while
/// all others are ready (SAFE-11), and no controller replaces the pods.
pub(super) fn one_by_one(inputs: &UnbindInputs<'_>, availability: &Availability) -> UnbindStep {
    let evicting = inputs.evicting(availability);
    let unready = inputs.unready_candidate(&evicting);
    let next = match evicting.blocker() {
        Some(blocker) if blocker.readiness_overdue && unready.is_none() => {
            let text = format!(
                "{} for {}, so no more pods are replaced; check the Events of the pod and of its controller; it \
                 continues once every pod is ready",
                blocker.text,
                evicting.limit_text()
            );
            return UnbindStep::Stalled(text);
        }
        Some(_) => unready,
        None => unready.or_else(|| evicting.next_candidate()),
    };
    // The controller of a StatefulSet with ordered pods does not replace an unready pod, even if the new revision would
    // repair it.
    let is_rolling = inputs.objects.iter().any(|it| it.rolling);
    let is_ordered = inputs.objects.iter().any(|it| it.deletes_pod_first);
    let may_go = |pod: &&PodToReplace| {
        let is_ready = inputs.is_ready(pod);
        (!is_rolling || (is_ordered && !is_ready)) && (is_ready || !inputs.is_new(pod))
    };
    let next = next.filter(may_go);
    next.map_or(UnbindStep::InProgress, |pod| UnbindStep::Evict(pod.clone()))
}
