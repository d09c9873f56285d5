//! Limits concurrent rollouts of our own workloads that no user requested (SAFE-36).

use super::steps::WorkloadStep;
use super::workload::recorded_workload;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// Whether an update replaces pods although the actor is unchanged, because the installation now renders another pod
/// template. A move to another queue is not delayed, because messages are waiting in it.
fn is_installation_rollout(observed: &Observed, step: &WorkloadStep) -> bool {
    let (Some(standalone), Some(existing)) = (observed.standalone(), observed.workload.ours())
    else {
        return false;
    };
    let is_update = matches!(step, WorkloadStep::Update(update) if update.take_over.is_none());
    let replaces_pods = existing
        .template_hash
        .as_deref()
        .is_some_and(|hash| *hash != *standalone.workload.template_hash);
    let unchanged = applied_generation(observed) == Some(observed.actor.generation);
    let desired = observed.desired.as_deref();
    is_update
        && replaces_pods
        && unchanged
        && existing.desired.max(existing.total) > 0
        && desired.is_ok_and(|desired| observed.pods_use_queue_of(desired))
}

/// Generation of the spec that the workload was applied for; `None` if status does not say. A change that was observed
/// while it could not be applied, for example because the actor was paused, still counts as the user's.
fn applied_generation(observed: &Observed) -> Option<i64> {
    let applied = recorded_workload(observed)?.applied_generation;
    applied.or(observed.previous.observed_generation)
}

/// How a workload step counts against the limit of concurrent rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutSlotStep {
    /// It does not: a user requested the update, or there is none.
    NotNeeded,
    /// The update must acquire a slot, because it replaces pods although the actor is unchanged.
    Acquire,
    /// Report the state of a workload that is as desired.
    Report {
        /// Its pods are being replaced.
        rolling: bool,
        /// All desired pods are ready.
        all_ready: bool,
    },
}

pub(super) fn plan_rollout_slot(observed: &Observed, step: &WorkloadStep) -> RolloutSlotStep {
    if is_installation_rollout(observed, step) {
        return RolloutSlotStep::Acquire;
    }
    match (step, observed.workload.ours()) {
        (WorkloadStep::Keep, Some(workload)) => report(workload),
        _ => RolloutSlotStep::NotNeeded,
    }
}

fn report(workload: &WorkloadRecord) -> RolloutSlotStep {
    let is_observed = workload.observed_generation >= workload.generation;
    let is_ready = workload.ready >= workload.desired;
    RolloutSlotStep::Report {
        rolling: workload.rolling,
        all_ready: is_observed && is_ready && !workload.rolling,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{RolloutSlotStep, is_installation_rollout, report};
    use crate::reconcile::model::child::Child;
    use crate::reconcile::model::observed::Observed;
    use crate::reconcile::plan::plan;
    use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// An actor with this observed generation, and its Deployment after `change`.
    fn observed_with(generation: i64, change: impl Fn(&mut Value)) -> Observed {
        let entry = json!({"group": "apps", "kind": "Deployment", "name": "a"});
        let status = json!({"observedGeneration": generation, "inventory": [entry]});
        let mut observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
        let mut object = deployment(&observed);
        change(&mut object);
        observed.workload = Child::Ours(workload(&object));
        observed
    }

    fn needs_slot(observed: &Observed) -> bool {
        let plan = plan(observed, NOW.parse().unwrap()).active().standalone();
        let needs_slot = plan.slot_step == RolloutSlotStep::Acquire;
        assert_eq!(
            needs_slot,
            is_installation_rollout(observed, &plan.workload)
        );
        needs_slot
    }

    /// SAFE-36
    #[test]
    fn template_change_without_an_actor_change_needs_a_slot() {
        let older = |object: &mut Value| {
            object["metadata"]["annotations"]["asya.sh/applied-hash"] = json!("older");
            object["spec"]["template"]["metadata"]["annotations"]["asya.sh/template-hash"] =
                json!("older");
        };
        assert!(needs_slot(&observed_with(2, older)));
        assert!(!needs_slot(&observed_with(1, older)), "the actor changed");
        let same_template = |object: &mut Value| {
            object["metadata"]["annotations"]["asya.sh/applied-hash"] = json!("older");
        };
        assert!(
            !needs_slot(&observed_with(2, same_template)),
            "no pod is replaced"
        );
        let scaled_to_zero = |object: &mut Value| {
            older(object);
            object["spec"]["replicas"] = json!(0);
            object["status"] = json!({"observedGeneration": 1, "replicas": 0});
        };
        assert!(
            !needs_slot(&observed_with(2, scaled_to_zero)),
            "there is no pod"
        );
        let mut moved = observed_with(2, older);
        let queue = json!({"transport": "mq", "name": "asya-other"});
        moved.previous.queue = Some(serde_json::from_value(queue).unwrap());
        assert!(!needs_slot(&moved), "messages are waiting in another queue");
    }

    /// SAFE-36: the user's change was observed while it could not be applied, for example because the actor was paused.
    /// If no status records the workload, the controller ended before it could record which spec it was applied for.
    #[test]
    fn spec_change_that_was_observed_earlier_needs_no_slot() {
        let older = |object: &mut Value| {
            object["spec"]["template"]["metadata"]["annotations"]["asya.sh/template-hash"] =
                json!("older");
        };
        for (kind, applied_generation, needs) in [
            ("Deployment", Some(1), false),
            ("Deployment", None, true),
            ("StatefulSet", Some(1), false),
            ("StatefulSet", None, false),
        ] {
            let mut observed = observed_with(2, older);
            let entry = json!({
                "group": "apps", "kind": kind, "name": "a", "appliedGeneration": applied_generation,
            });
            observed.previous.inventory = vec![serde_json::from_value(entry).unwrap()];
            let row = (kind, applied_generation);
            assert_eq!(needs_slot(&observed), needs, "{row:?}");
        }
    }

    /// SAFE-36
    #[test]
    fn rollout_ends_when_every_new_pod_is_ready() {
        let observed = observed_with(2, |_| {});
        for (status, expected) in [
            (
                json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}),
                (false, true),
            ),
            (
                json!({"observedGeneration": 0, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}),
                (false, false),
            ),
            (
                json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}),
                (true, false),
            ),
            (
                json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 0}),
                (false, false),
            ),
        ] {
            let mut object = deployment(&observed);
            object["status"] = status;
            let (rolling, all_ready) = expected;
            let expected = RolloutSlotStep::Report { rolling, all_ready };
            assert_eq!(report(&workload(&object)), expected, "{object}");
        }
    }
}
