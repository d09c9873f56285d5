//! Reasons not to make the target's own controller replace its pods now. Checked before every write that would: the
//! rollout annotation, its removal, the autoscaler handoff, and our fields of the pod template.

use crate::reconcile::model::rollout::TargetObject;

/// Set if a controller would delete a ready pod while others are not ready (SAFE-13).
pub fn loses_ready_pod(objects: &[TargetObject]) -> Option<String> {
    let not_ready = objects.iter().find(|it| it.may_lose_ready_pod())?;
    Some(format!(
        "{}: not all of its pods are ready, and a rollout would replace a ready one; waiting until all are ready",
        not_ready.object
    ))
}

/// Set if a controller would stop all pods of the target at once (SAFE-14).
pub fn stops_all_pods(objects: &[TargetObject]) -> Option<String> {
    let recreating = objects.iter().find(|it| it.would_stop_all_pods())?;
    Some(format!(
        "{}: its strategy Recreate would stop all of its pods at once; change the strategy to RollingUpdate, or scale \
         it down to one pod",
        recreating.object
    ))
}

/// Set if `budget`, the name of an exhausted disruption budget, forbids a rollout that may remove a pod before its
/// replacement is ready (ROLL-2 (d)).
pub fn exceeds_budget(objects: &[TargetObject], budget: Option<&str>) -> Option<String> {
    let budget = budget.filter(|_| objects.iter().any(|it| it.reduces_ready))?;
    Some(format!(
        "PodDisruptionBudget {budget} allows no disruption, and a rollout may remove a pod before its replacement is \
         ready; waiting until the budget allows one"
    ))
}

#[cfg(test)]
mod tests;
