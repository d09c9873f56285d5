use std::sync::Arc;

use asya_shared::api::QueueStatus;
use serde_json::{Value, json};

use super::{ensure, now, recorded};
use crate::broker::QueueCheck;
use crate::reconcile::desired::Mode;
use crate::reconcile::desired::drain::{Drain, Held};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::{Observed, QueueSeen};
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::plan;
use crate::reconcile::plan::steps::{QueueStep, WorkloadStep};
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec};

/// An actor with these annotations and this generation that was ready with generation 2.
fn was_ready(annotations: &Value, generation: i64) -> Observed {
    let metadata = json!({"annotations": annotations, "generation": generation});
    let mut seen = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    seen.queue = QueueSeen::Verified;
    seen.previous.ready_generation = Some(2);
    seen
}

fn once(generation: i64) -> Observed {
    was_ready(&json!({"asya.sh/reconcile": "Once"}), generation)
}

/// FW-21
#[test]
fn reconcile_once_leaves_a_ready_actor_alone_until_its_spec_changes() {
    let mut drifted = deployment(&once(2));
    drifted["metadata"]["managedFields"] = json!([]);
    let mut seen = recorded(once(2), &drifted);
    assert!(ensure(&seen).done_once, "drift stays");
    seen.workload = Child::Absent;
    assert!(ensure(&seen).done_once, "even what is gone");
    assert!(
        !ensure(&once(3)).done_once,
        "another spec is brought about, once"
    );
    assert!(!ensure(&was_ready(&json!({}), 2)).done_once);

    let mut applied = recorded(once(2), &deployment(&once(2)));
    applied.previous.ready_generation = None;
    assert!(
        !ensure(&applied).done_once,
        "that all was applied does not make it ready"
    );
    let both = json!({"asya.sh/reconcile": "Once", "asya.sh/paused": "true"});
    assert!(matches!(plan(&was_ready(&both, 2), now()), Plan::Rest(_)));
}

/// Deletion raises the generation, which must not roll pods that drain the queue (FW-21, QUE-41).
#[test]
fn draining_actor_with_reconcile_once_keeps_its_pods_and_gets_missing_ones_back() {
    let going = |generation: i64, ready: Option<i64>| {
        let metadata = json!({
            "annotations": {"asya.sh/reconcile": "Once"},
            "generation": generation,
            "deletionTimestamp": "2026-01-01T00:00:10Z",
        });
        let extra = json!({"queue": {"deletionPolicy": "Drain"}});
        let mut seen = observed(&actor(&metadata, &spec(&extra), &json!({})));
        seen.queue = QueueSeen::Verified;
        seen.previous.ready_generation = ready;
        seen.drain = Some(Drain::Works(Held::default()));
        seen
    };
    for (generation, ready, done) in [(3, Some(2), true), (5, Some(2), true), (3, None, false)] {
        let seen = recorded(going(generation, ready), &deployment(&once(2)));
        assert_eq!(ensure(&seen).done_once, done, "{generation} {ready:?}");
    }
    let mut gone = going(3, Some(2));
    gone.workload = Child::Absent;
    let step = ensure(&gone);
    assert_eq!(
        (step.done_once, step.workload),
        (false, WorkloadStep::Create)
    );
}

/// Neither a new script nor a new sidecar image is a change of the spec (FW-21).
#[test]
fn change_of_the_installation_does_not_roll_an_actor_with_reconcile_once() {
    let mut seen = recorded(once(2), &deployment(&once(2)));
    if let Ok(desired) = &mut seen.desired {
        let desired = Arc::get_mut(desired).unwrap();
        let Mode::Standalone(own) = &mut desired.mode else {
            panic!("its workload is ours")
        };
        own.workload.kept.hash = "of another script".to_owned();
        own.workload.template_hash = "of another script".to_owned();
    }
    let step = ensure(&seen);
    assert!(step.done_once);
    assert!(
        matches!(step.workload, WorkloadStep::Update { .. }),
        "without Once it would roll"
    );
}

/// The queue is no child: it is reconciled as long as it is the one that the pods consume from (FW-21, QUE-13, QUE-22).
#[test]
fn reconcile_once_recreates_the_queue_but_never_switches_to_another() {
    let queue = |name: &str| {
        let mut seen = once(2);
        seen.queue = QueueSeen::Checked(QueueCheck::Absent);
        seen.previous.queue = Some(QueueStatus {
            transport: "mq".to_owned(),
            name: name.to_owned(),
            ..QueueStatus::default()
        });
        ensure(&seen).queue
    };
    assert_eq!(queue("asya-a"), QueueStep::Create);
    assert_eq!(queue("asya-ns-a"), QueueStep::Leave);
}
