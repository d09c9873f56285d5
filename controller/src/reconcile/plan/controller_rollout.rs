//! Reasons not to make the target's own controller replace its pods now. Checked before every write that would: the
//! rollout annotation, its removal, the autoscaler handoff, and our fields of the pod template.

use std::fmt;

use crate::reconcile::model::rollout::TargetObject;

/// Why a controller must not replace pods now; shown in status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutBlocker {
    /// This object's controller would delete a ready pod while others are not ready (SAFE-13).
    LosesReadyPod(String),
    /// This object's controller would stop all pods at once (SAFE-14).
    StopsAllPods(String),
    /// This disruption budget is exhausted, and the rollout may remove a pod before its replacement is ready
    /// (ROLL-2 (d)).
    ExceedsBudget(String),
}

impl fmt::Display for RolloutBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LosesReadyPod(object) => write!(
                f,
                "{object}: not all of its pods are ready, and a rollout would replace a ready one; waiting until all \
                 are ready"
            ),
            Self::StopsAllPods(object) => write!(
                f,
                "{object}: its strategy Recreate would stop all of its pods at once; change the strategy to \
                 RollingUpdate, or scale it down to one pod"
            ),
            Self::ExceedsBudget(budget) => write!(
                f,
                "PodDisruptionBudget {budget} allows no disruption, and a rollout may remove a pod before its \
                 replacement is ready; waiting until the budget allows one"
            ),
        }
    }
}

impl RolloutBlocker {
    pub fn loses_ready_pod(objects: &[TargetObject]) -> Option<Self> {
        let not_ready = objects.iter().find(|object| object.may_lose_ready_pod())?;
        Some(Self::LosesReadyPod(not_ready.object.to_string()))
    }

    pub fn stops_all_pods(objects: &[TargetObject]) -> Option<Self> {
        let recreating = objects.iter().find(|object| object.would_stop_all_pods())?;
        Some(Self::StopsAllPods(recreating.object.to_string()))
    }

    /// `budget` is the name of an exhausted disruption budget.
    pub fn exceeds_budget(objects: &[TargetObject], budget: Option<&str>) -> Option<Self> {
        let budget = budget.filter(|_| objects.iter().any(|object| object.reduces_ready))?;
        Some(Self::ExceedsBudget(budget.to_owned()))
    }
}

#[cfg(test)]
mod tests;
