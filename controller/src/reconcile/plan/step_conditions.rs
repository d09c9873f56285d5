//! Which steps of a plan to execute, from the outcome of earlier steps.

use asya_shared::api::WorkloadKind;

use super::decision::StandalonePlan;
use super::steps::WorkloadStep;
use super::template::TemplateStep;
use crate::fault::Reason;
use crate::reconcile::model::outcome::{
    ActiveOutcome, BindingOutcome, CommonOutcome, QueueState, StandaloneOutcome,
};

/// Whether the reconcile ends after the queue. Only the first creation of the workload requires a usable queue, but it
/// does not wait for a name that SQS frees within a minute (QUE-4).
pub fn ends_after_queue(
    leaves_objects_alone: bool,
    plan: &StandalonePlan,
    queue: &QueueState,
) -> bool {
    let expected_soon =
        matches!(queue, QueueState::Fault(fault) if fault.reason == Reason::QueueDeletedRecently);
    let creates_first = plan.workload == WorkloadStep::Create && plan.previously_applied.is_none();
    leaves_objects_alone || (creates_first && !queue.is_usable() && !expected_soon)
}

/// Whether status must be written even if a later step fails. It must name a queue before anything else can change:
/// nothing else records which queue to retire or delete later.
pub fn must_report_queue(queue: &QueueState, was_verified: bool) -> bool {
    let is_new = matches!(queue, QueueState::Created(_) | QueueState::Ready(Some(_)));
    is_new && !was_verified
}

/// Whether to delete the workload of the previous kind: if scaling is on, the new one must already be scaled, unless
/// nothing of ours scales either of them, as without KEDA (WRK-6).
pub fn replaces_previous(kind: WorkloadKind, outcome: &StandaloneOutcome) -> bool {
    let scaling = outcome.common.scaling.as_ref();
    let scaled = scaling.is_none_or(|scaled| match &scaled.scaled_object {
        Some(existing) => *existing.target.kind == *kind.name(),
        None => scaled.fault.is_some(),
    });
    outcome.workload.is_some() && scaled
}

/// Whether to delete a `ServiceAccount` that the spec no longer needs: pods that were not updated may still use it.
pub fn removes_service_account(outcome: &CommonOutcome) -> bool {
    outcome.fault.is_none()
}

/// Whether to check the retired queues. Not after a fault: pods that were not updated, of a workload or of a bound
/// target, may still consume from them.
pub fn checks_retired(outcome: &ActiveOutcome) -> bool {
    let common = outcome.common();
    common.fault.is_none()
        && match outcome {
            ActiveOutcome::Standalone(_) => true,
            ActiveOutcome::Binding(outcome) => outcome.can_bind && common.interrupted.is_none(),
        }
}

/// Whether to dry-run pods and to roll out. An actor whose objects are left alone still reports its pods.
pub fn rolls_out(leaves_objects_alone: bool, outcome: &BindingOutcome) -> bool {
    leaves_objects_alone || outcome.can_bind
}

/// Whether to write the target's pod template: without a usable queue, only to give up our fields.
pub fn template_is_due(template: &TemplateStep, outcome: &BindingOutcome) -> bool {
    outcome.can_bind || template.gives_up_fields()
}

#[cfg(test)]
mod tests {
    use asya_shared::api::WorkloadKind;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::{
        ends_after_queue, must_report_queue, removes_service_account, replaces_previous, rolls_out,
    };
    use crate::broker::ReadyQueue;
    use crate::fault::{Fault, Reason};
    use crate::reconcile::model::child::Child;
    use crate::reconcile::model::outcome::{
        BindingOutcome, CommonOutcome, QueueState, ScalingOutcome, StandaloneOutcome,
    };
    use crate::reconcile::plan::plan;
    use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};
    use crate::scaling::tests::fixtures::scaled_object;

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
                QueueState::Created(ReadyQueue::default()),
                false,
            ),
            (json!([]), false, QueueState::Unmanaged, false),
            (json!([]), false, missing(), true),
            (json!([]), false, fault(Reason::QueueDeletedRecently), false),
            (json!([entry]), false, missing(), false),
            (json!([]), true, missing(), false),
        ] {
            let status = json!({"inventory": inventory});
            let mut observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
            if exists {
                observed.workload = Child::Ours(workload(&deployment(&observed)));
            }
            let plan = plan(&observed, Timestamp::UNIX_EPOCH).active().standalone();
            assert_eq!(
                ends_after_queue(false, &plan, &queue),
                ends,
                "{inventory} {exists} {queue:?}"
            );
        }
    }

    /// QUE-13
    #[test]
    fn status_names_a_new_queue_even_if_a_later_step_fails() {
        for (queue, was_verified, expected) in [
            (QueueState::Created(ReadyQueue::default()), false, true),
            (QueueState::Created(ReadyQueue::default()), true, false),
            (QueueState::Ready(Some(ReadyQueue::default())), false, true),
            (QueueState::Ready(None), false, false),
            (QueueState::Unmanaged, false, false),
        ] {
            assert_eq!(
                must_report_queue(&queue, was_verified),
                expected,
                "{queue:?}"
            );
        }
    }

    /// BIND-8, SA-3
    #[test]
    fn pods_are_replaced_only_with_a_queue_and_accounts_go_only_without_a_fault() {
        let with = |can_bind| BindingOutcome {
            can_bind,
            ..BindingOutcome::default()
        };
        for (leaves_objects_alone, can_bind, expected) in [
            (false, true, true),
            (false, false, false),
            (true, false, true),
        ] {
            assert_eq!(rolls_out(leaves_objects_alone, &with(can_bind)), expected);
        }
        let with_fault = CommonOutcome {
            fault: Some(Fault::until_change(Reason::QueueMissing, "text")),
            ..CommonOutcome::default()
        };
        assert!(removes_service_account(&CommonOutcome::default()));
        assert!(!removes_service_account(&with_fault));
    }

    /// WRK-6
    #[test]
    fn previous_workload_is_deleted_once_the_new_one_exists_and_is_scaled() {
        let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        let new = Some(workload(&deployment(&observed)));
        let outcome = |workload, scaling| StandaloneOutcome {
            workload,
            common: CommonOutcome {
                scaling,
                ..CommonOutcome::default()
            },
            ..StandaloneOutcome::default()
        };
        let scaled = |kind: Option<&str>, fault: Option<Fault>| {
            let target = |kind| json!({"spec": {"scaleTargetRef": {"name": "a", "kind": kind}}});
            Some(Box::new(ScalingOutcome {
                scaled_object: kind.map(|kind| scaled_object(&target(kind))),
                fault,
                ..ScalingOutcome::default()
            }))
        };
        let fault = || Some(Fault::until_change(Reason::KedaNotInstalled, "text"));
        let replaces =
            |outcome: &StandaloneOutcome| replaces_previous(WorkloadKind::Deployment, outcome);
        assert!(!replaces(&outcome(None, None)));
        assert!(replaces(&outcome(new.clone(), None)), "scaling is off");
        for (kind, fault, expected) in [
            (None, None, false),
            (None, fault(), true),
            (Some("StatefulSet"), None, false),
            (Some("StatefulSet"), fault(), false),
            (Some("Deployment"), None, true),
            (Some("Deployment"), fault(), true),
        ] {
            let outcome = outcome(new.clone(), scaled(kind, fault.clone()));
            assert_eq!(replaces(&outcome), expected, "{kind:?} {fault:?}");
        }
    }
}
