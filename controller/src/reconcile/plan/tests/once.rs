use std::sync::Arc;

use asya_shared::api::QueueStatus;
use serde_json::{Value, json};

use super::{active_plan, now, recorded};
use crate::broker::QueueCheck;
use crate::reconcile::desired::DesiredMode;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::drain::{DrainState, RemainingQueues};
use crate::reconcile::model::observed::{Observed, ObservedQueue};
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::plan;
use crate::reconcile::plan::steps::{QueueStep, WorkloadStep};
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec};

/// An actor with these annotations and this generation that was ready with generation 2.
fn was_ready(annotations: &Value, generation: i64) -> Observed {
    let metadata = json!({"annotations": annotations, "generation": generation});
    let mut observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    observed.queue = ObservedQueue::Verified;
    observed.previous.ready_generation = Some(2);
    observed
}

fn once(generation: i64) -> Observed {
    was_ready(&json!({"asya.sh/reconcile": "Once"}), generation)
}

/// FW-21
#[test]
fn reconcile_once_leaves_a_ready_actor_alone_until_its_spec_changes() {
    let mut drifted = deployment(&once(2));
    drifted["metadata"]["managedFields"] = json!([]);
    let mut observed = recorded(once(2), &drifted);
    assert!(
        active_plan(&observed).common.leaves_objects_alone,
        "drift is kept"
    );
    observed.workload = Child::NotFound;
    assert!(
        active_plan(&observed).common.leaves_objects_alone,
        "a deleted workload is not recreated"
    );
    assert!(
        !active_plan(&once(3)).common.leaves_objects_alone,
        "a changed spec is applied once"
    );
    assert!(
        !active_plan(&was_ready(&json!({}), 2))
            .common
            .leaves_objects_alone
    );

    let mut applied = recorded(once(2), &deployment(&once(2)));
    applied.previous.ready_generation = None;
    assert!(
        !active_plan(&applied).common.leaves_objects_alone,
        "applied is not ready"
    );
    let both = json!({"asya.sh/reconcile": "Once", "asya.sh/paused": "true"});
    assert!(matches!(plan(&was_ready(&both, 2), now()), Plan::Paused(_)));
}

/// Deletion raises the generation, which must not restart pods that empty the queue (FW-21, QUE-41).
#[test]
fn actor_that_waits_until_empty_keeps_its_pods_and_recreates_a_missing_workload_with_reconcile_once()
 {
    let waiting_until_empty = |generation: i64, ready: Option<i64>| {
        let metadata = json!({
            "annotations": {"asya.sh/reconcile": "Once"},
            "generation": generation,
            "deletionTimestamp": "2026-01-01T00:00:10Z",
        });
        let extra = json!({"queue": {"deletionPolicy": "Drain"}});
        let mut observed = observed(&actor(&metadata, &spec(&extra), &json!({})));
        observed.queue = ObservedQueue::Verified;
        observed.previous.ready_generation = ready;
        observed.drain = Some(DrainState::Waiting(RemainingQueues::default()));
        observed
    };
    for (generation, ready, done) in [(3, Some(2), true), (5, Some(2), true), (3, None, false)] {
        let observed = recorded(
            waiting_until_empty(generation, ready),
            &deployment(&once(2)),
        );
        assert_eq!(
            active_plan(&observed).common.leaves_objects_alone,
            done,
            "{generation} {ready:?}"
        );
    }
    let mut gone = waiting_until_empty(3, Some(2));
    gone.workload = Child::NotFound;
    let plan = active_plan(&gone);
    assert!(!plan.common.leaves_objects_alone);
    assert_eq!(plan.standalone().workload, WorkloadStep::Create);
}

/// Neither a new script nor a new sidecar image is a change of the spec (FW-21).
#[test]
fn change_of_the_installation_does_not_roll_an_actor_with_reconcile_once() {
    let mut observed = recorded(once(2), &deployment(&once(2)));
    if let Ok(desired) = &mut observed.desired {
        let desired = Arc::get_mut(desired).unwrap();
        let DesiredMode::Standalone(standalone) = &mut desired.mode else {
            panic!("its workload is ours")
        };
        standalone.workload.applied.hash = "of another script".to_owned();
        standalone.workload.template_hash = "of another script".to_owned();
    }
    let plan = active_plan(&observed);
    assert!(plan.common.leaves_objects_alone);
    assert!(
        matches!(plan.standalone().workload, WorkloadStep::Update(_)),
        "it would be rolled out without Once"
    );
}

/// The queue is not a child: it is reconciled as long as pods consume from it (FW-21, QUE-13, QUE-22).
#[test]
fn reconcile_once_recreates_the_queue_but_never_switches_to_another() {
    let queue = |name: &str| {
        let mut observed = once(2);
        observed.queue = ObservedQueue::Checked(QueueCheck::NotFound);
        observed.previous.queue = Some(QueueStatus {
            transport: "mq".to_owned(),
            name: name.to_owned(),
            ..QueueStatus::default()
        });
        active_plan(&observed).common.queue.unwrap().step
    };
    assert_eq!(queue("asya-a"), QueueStep::Create);
    assert_eq!(queue("asya-ns-a"), QueueStep::Skip);
}
