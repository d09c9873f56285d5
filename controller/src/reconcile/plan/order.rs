//! Which steps of a plan follow from the outcome of the steps before them.

use asya_shared::api::WorkloadKind;

use super::decision::Ensure;
use super::steps::WorkloadStep;
use super::template::Templating;
use crate::fault::Reason;
use crate::reconcile::model::outcome::{Ensured, QueueState};

/// Whether anything follows the queue. Only the first creation of the workload waits for it, and not for a queue whose
/// name SQS frees within a minute (QUE-4).
pub fn ends_after_queue(plan: &Ensure, queue: &QueueState) -> bool {
    let comes_soon =
        matches!(queue, QueueState::Fault(fault) if fault.reason == Reason::QueueDeletedRecently);
    let creates_first = plan.workload == WorkloadStep::Create && plan.applied_before.is_none();
    plan.done_once || (creates_first && !queue.is_usable() && !comes_soon)
}

/// Whether to delete the workload of the other kind: a desired autoscaler must already scale the new one (WRK-6).
pub fn replaces_former(kind: WorkloadKind, ensured: &Ensured) -> bool {
    let scaled = ensured.scaling.as_ref().is_none_or(|scaled| {
        let target = scaled
            .scaled_object
            .as_ref()
            .map(|found| &*found.target.kind);
        scaled.fault.is_none() && target == Some(kind.name())
    });
    ensured.workload.is_some() && scaled
}

/// Whether to check the retired queues. Without a fault only: a workload that could not be updated may have to stay as
/// it was, and the pods of a target (`binds`) as they are.
pub fn checks_retired(ensured: &Ensured, binds: bool) -> bool {
    let bound = ensured.bindable && ensured.interrupted.is_none();
    ensured.fault.is_none() && (!binds || bound)
}

/// Whether to act on the target's pod template: without a usable queue only to give our part up.
pub fn template_is_due(template: &Templating, ensured: &Ensured) -> bool {
    ensured.bindable || template.gives_up()
}

#[cfg(test)]
mod tests {
    use asya_shared::api::WorkloadKind;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::{ends_after_queue, replaces_former};
    use crate::broker::Serving;
    use crate::fault::{Fault, Reason};
    use crate::reconcile::model::child::Child;
    use crate::reconcile::model::outcome::{Ensured, QueueState, ScalingOutcome};
    use crate::reconcile::plan::decision::Plan;
    use crate::reconcile::plan::plan;
    use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

    /// QUE-4
    #[test]
    fn only_the_first_creation_of_a_workload_waits_for_its_queue() {
        let entry = json!({"group": "apps", "kind": "Deployment", "name": "a"});
        let fault = |reason| QueueState::Fault(Fault::until_change(reason, "text"));
        let missing = || fault(Reason::QueueMissing);
        for (inventory, exists, queue, ends) in [
            (
                json!([]),
                false,
                QueueState::Created(Serving::default()),
                false,
            ),
            (json!([]), false, QueueState::Unmanaged, false),
            (json!([]), false, missing(), true),
            (json!([]), false, fault(Reason::QueueDeletedRecently), false),
            (json!([entry]), false, missing(), false),
            (json!([]), true, missing(), false),
        ] {
            let status = json!({"inventory": inventory});
            let mut seen = observed(&actor(&json!({}), &spec(&json!({})), &status));
            if exists {
                seen.workload = Child::Ours(workload(&deployment(&seen)));
            }
            let Plan::Ensure(plan) = plan(&seen, Timestamp::UNIX_EPOCH) else {
                panic!()
            };
            assert_eq!(
                ends_after_queue(&plan, &queue),
                ends,
                "{inventory} {exists} {queue:?}"
            );
        }
    }

    /// WRK-6
    #[test]
    fn former_workload_goes_once_the_new_one_exists_and_is_scaled() {
        let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        let new = Some(workload(&deployment(&seen)));
        let ensured = |workload, scaling| Ensured {
            workload,
            scaling,
            ..Ensured::default()
        };
        let unscaled = || Some(Box::new(ScalingOutcome::default()));
        let replaces = |it: &Ensured| replaces_former(WorkloadKind::Deployment, it);
        assert!(!replaces(&ensured(None, None)));
        assert!(replaces(&ensured(new.clone(), None)), "scaling is off");
        assert!(!replaces(&ensured(new, unscaled())));
    }
}
