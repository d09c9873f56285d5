//! Paces rollouts of our own workloads that no user requested (SAFE-36).

use super::queue::knows_queue;
use super::steps::WorkloadStep;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// Whether an update replaces pods although nobody changed the actor: the installation now renders another pod
/// template. A move to another queue does not count, because messages wait there.
fn is_of_installation(observed: &Observed, step: &WorkloadStep) -> bool {
    let (Some(own), Some(found)) = (observed.standalone(), observed.workload.ours()) else {
        return false;
    };
    let is_update = matches!(
        step,
        WorkloadStep::Update {
            take_over: None,
            ..
        }
    );
    let replaces = found
        .template_hash
        .as_deref()
        .is_some_and(|hash| *hash != *own.workload.template_hash);
    let unchanged = observed.previous.observed_generation == Some(observed.actor.generation);
    let desired = observed.desired.as_deref();
    is_update
        && replaces
        && unchanged
        && found.desired.max(found.total) > 0
        && desired.is_ok_and(|desired| knows_queue(observed, desired))
}

/// What a workload step means for the number of concurrent rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Nothing: a user asked for the update, or there is none.
    Unlimited,
    /// The update needs a slot: it replaces pods although nobody changed the actor.
    NeedsSlot,
    /// Report the state of a workload that is as desired.
    Report { rolls: bool, settled: bool },
}

pub(super) fn plan_pacing(observed: &Observed, step: &WorkloadStep) -> Pacing {
    if is_of_installation(observed, step) {
        return Pacing::NeedsSlot;
    }
    match (step, observed.workload.ours()) {
        (WorkloadStep::Keep, Some(workload)) => {
            let (rolls, settled) = rolls_and_settled(workload);
            Pacing::Report { rolls, settled }
        }
        _ => Pacing::Unlimited,
    }
}

/// Whether pods of a workload are being replaced, and whether all desired pods are ready.
fn rolls_and_settled(workload: &WorkloadRecord) -> (bool, bool) {
    let seen = workload.observed_generation >= workload.generation;
    let ready = workload.ready >= workload.desired;
    (workload.rolling, seen && ready && !workload.rolling)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Pacing, is_of_installation, rolls_and_settled};
    use crate::reconcile::model::child::Child;
    use crate::reconcile::model::observed::Observed;
    use crate::reconcile::plan::decision::Plan;
    use crate::reconcile::plan::plan;
    use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// An actor whose spec was observed, and its Deployment after `change`.
    fn seen(generation: i64, change: impl Fn(&mut Value)) -> Observed {
        let status = json!({"observedGeneration": generation});
        let mut observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
        let mut object = deployment(&observed);
        change(&mut object);
        observed.workload = Child::Ours(workload(&object));
        observed
    }

    fn paced(observed: &Observed) -> bool {
        match plan(observed, NOW.parse().unwrap()) {
            Plan::Ensure(ensure) => {
                let paced = ensure.pacing == Pacing::NeedsSlot;
                assert_eq!(paced, is_of_installation(observed, &ensure.workload));
                paced
            }
            other => panic!("{other:?}"),
        }
    }

    /// SAFE-36
    #[test]
    fn template_change_without_an_actor_change_is_paced() {
        let older = |object: &mut Value| {
            object["metadata"]["annotations"]["asya.sh/applied-hash"] = json!("older");
            object["spec"]["template"]["metadata"]["annotations"]["asya.sh/template-hash"] =
                json!("older");
        };
        assert!(paced(&seen(2, older)));
        assert!(!paced(&seen(1, older)), "the actor changed");
        let same_template = |object: &mut Value| {
            object["metadata"]["annotations"]["asya.sh/applied-hash"] = json!("older");
        };
        assert!(!paced(&seen(2, same_template)), "no pod is replaced");
        let asleep = |object: &mut Value| {
            older(object);
            object["spec"]["replicas"] = json!(0);
            object["status"] = json!({"observedGeneration": 1, "replicas": 0});
        };
        assert!(!paced(&seen(2, asleep)), "there is no pod");
        let mut moved = seen(2, older);
        let queue = json!({"transport": "mq", "name": "asya-other"});
        moved.previous.queue = Some(serde_json::from_value(queue).unwrap());
        assert!(!paced(&moved), "messages wait in another queue");
    }

    /// SAFE-36
    #[test]
    fn rollout_ends_when_every_new_pod_is_ready() {
        let observed = seen(2, |_| {});
        for (status, wanted) in [
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
            assert_eq!(rolls_and_settled(&workload(&object)), wanted, "{object}");
        }
    }
}
