use asya_shared::queue_claims::ClaimKind;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::plan_stop;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::observed::QueueNameTaken;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::plan;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::reconcile::tests::fixtures::{
    actor, deployment, observed, spec, stateful_set, workload,
};
use crate::record::Key;
use crate::scaling::tests::fixtures::scaled_object;

const APPLIED: &str = "hash of what was applied";

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

/// An actor with a Deployment whose queue another actor owns; `recorded` is the queue in its status.
fn name_taken(recorded: Option<(&str, DeletePermission)>) -> Observed {
    let status = recorded.as_ref().map(|(transport, _)| {
        json!({"queue": {"transport": transport, "name": "asya-a", "verifiedGeneration": 2}})
    });
    let status = status.unwrap_or_else(|| json!({}));
    let mut observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
    let mut object = deployment(&observed);
    object["metadata"]["annotations"] = json!({"asya.sh/applied-hash": APPLIED});
    observed.workload = Child::Ours(workload(&object));
    observed.queue_name_taken = Some(QueueNameTaken {
        contested: ClaimKind::Queue,
        workload_hash: Some("another".to_owned()),
        kind: None,
    });
    observed.desired = Err(Fault::until_change(Reason::QueueConflict, "it is b's"));
    if let (Some((_, permission)), Some(verified)) = (recorded, &mut observed.queues.verified) {
        verified.permission = permission;
    }
    observed
}

fn lost() -> DeletePermission {
    DeletePermission::HeldBy(Key::new("ns", "b"))
}

/// The workloads that are scaled to zero.
fn stopped(observed: &Observed) -> Option<Vec<&'static str>> {
    let stop = plan_stop(observed, now())?;
    let kinds = stop.workloads.iter().map(|workload| workload.kind.name());
    Some(kinds.collect())
}

/// QUE-3
#[test]
fn only_pods_that_would_consume_another_actors_messages_are_stopped() {
    let all = Some(vec!["Deployment"]);
    assert_eq!(
        stopped(&name_taken(None)),
        all,
        "as after a migration from the Go operator"
    );
    assert_eq!(
        stopped(&name_taken(Some(("mq", lost())))),
        all,
        "it used to own the queue"
    );
    assert_eq!(
        stopped(&name_taken(Some(("other", DeletePermission::Allowed)))),
        None,
        "its pods consume from an earlier queue of its own"
    );
    let applied = |recorded| {
        let mut applied = name_taken(recorded);
        applied.queue_name_taken = Some(QueueNameTaken {
            contested: ClaimKind::Queue,
            workload_hash: Some(APPLIED.to_owned()),
            kind: None,
        });
        applied
    };
    let moved = applied(Some(("other", DeletePermission::Allowed)));
    assert_eq!(
        stopped(&moved),
        all,
        "applied before its queue was verified"
    );
    for (recorded, stops) in [
        (None, false),
        (Some(("mq", DeletePermission::Allowed)), false),
    ] {
        let mut dead_letters = applied(recorded);
        dead_letters.queue_name_taken = dead_letters.queue_name_taken.map(|taken| QueueNameTaken {
            contested: ClaimKind::DeadLetters,
            ..taken
        });
        assert_eq!(stopped(&dead_letters).is_some(), stops, "only dead letters");
    }
    let mut free = name_taken(None);
    free.queue_name_taken = None;
    assert_eq!(stopped(&free), None);
}

/// QUE-3
#[test]
fn workloads_of_both_kinds_are_stopped_once_and_foreign_ones_never() {
    let mut both = name_taken(None);
    let object = deployment(&both);
    both.previous_workload = Some(stateful_set(&object));
    assert_eq!(stopped(&both), Some(vec!["Deployment", "StatefulSet"]));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut observed = name_taken(None);
        let mut object = object.clone();
        change(&mut object);
        observed.workload = Child::Ours(workload(&object));
        observed
    };
    let none = Some(Vec::new());
    assert_eq!(
        stopped(&with(&|object| object["spec"]["replicas"] = json!(0))),
        none
    );
    let deleting = |object: &mut Value| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    assert_eq!(stopped(&with(&deleting)), none);
    let mut foreign = name_taken(None);
    foreign.workload = Child::Foreign(workload(&object));
    assert_eq!(stopped(&foreign), none);
}

/// QUE-3, FW-24
#[test]
fn keda_releases_the_workload_before_its_pods_stop() {
    let mut scaled = name_taken(None);
    scaled.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let plan = plan(&scaled, now()).active();
    let Some(ScalingStep::Disabled(teardown)) = &plan.common.scaling else {
        panic!()
    };
    assert!(matches!(teardown.scaled_object, ChildStep::Delete(_)));
    let steps = plan.standalone();
    assert!(steps.workloads_to_stop.is_empty());
    assert_eq!(steps.workload, WorkloadStep::Keep);
    scaled.scaling.scaled_object = Child::NotFound;
    assert_eq!(stopped(&scaled), Some(vec!["Deployment"]));
}

/// API-3
#[test]
fn paused_actor_keeps_its_pods() {
    let mut paused = name_taken(None);
    let annotations = json!({"annotations": {"asya.sh/paused": "true"}});
    paused.actor = observed(&actor(&annotations, &spec(&json!({})), &json!({}))).actor;
    assert!(matches!(plan(&paused, now()), Plan::Paused(_)));
}
