use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::plan_stop;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::known_queues::Hold;
use crate::reconcile::model::observed::Contested;
use crate::reconcile::model::observed::Observed;
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

/// An actor with a Deployment whose queue another actor owns; `has` is the queue in its status.
fn loser(has: Option<(&str, Hold)>) -> Observed {
    let status = has.as_ref().map(|(transport, _)| {
        json!({"queue": {"transport": transport, "name": "asya-a", "verifiedGeneration": 2}})
    });
    let status = status.unwrap_or_else(|| json!({}));
    let mut observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
    let mut object = deployment(&observed);
    object["metadata"]["annotations"] = json!({"asya.sh/applied-hash": APPLIED});
    observed.workload = Child::Ours(workload(&object));
    observed.contested = Some(Contested {
        queue: true,
        workload: Some("another".to_owned()),
        kind: None,
    });
    observed.desired = Err(Fault::until_change(Reason::QueueConflict, "it is b's"));
    if let (Some((_, hold)), Some(verified)) = (has, &mut observed.queues.verified) {
        verified.hold = hold;
    }
    observed
}

fn lost() -> Hold {
    Hold::Lost(Key::new("ns", "b"))
}

/// The workloads that lose their pods.
fn stopped(observed: &Observed) -> Option<Vec<&'static str>> {
    let stop = plan_stop(observed, now())?;
    let kinds = stop.workloads.iter().map(|workload| workload.kind.name());
    Some(kinds.collect())
}

/// QUE-3
#[test]
fn only_pods_that_would_consume_another_actors_messages_are_stopped() {
    let all = Some(vec!["Deployment"]);
    assert_eq!(stopped(&loser(None)), all, "as after the former operator");
    assert_eq!(
        stopped(&loser(Some(("mq", lost())))),
        all,
        "it had the queue"
    );
    assert_eq!(
        stopped(&loser(Some(("other", Hold::Ours)))),
        None,
        "they receive from an earlier queue, which is the actor's own"
    );
    let applied = |has| {
        let mut applied = loser(has);
        applied.contested = Some(Contested {
            queue: true,
            workload: Some(APPLIED.to_owned()),
            kind: None,
        });
        applied
    };
    let moved = applied(Some(("other", Hold::Ours)));
    assert_eq!(
        stopped(&moved),
        all,
        "applied before its queue was verified"
    );
    for (has, stops) in [(None, false), (Some(("mq", Hold::Ours)), false)] {
        let mut dead = applied(has);
        dead.contested = dead.contested.map(|it| Contested { queue: false, ..it });
        assert_eq!(stopped(&dead).is_some(), stops, "only dead letters");
    }
    let mut free = loser(None);
    free.contested = None;
    assert_eq!(stopped(&free), None);
}

/// QUE-3
#[test]
fn workloads_of_both_kinds_are_stopped_once_and_foreign_ones_never() {
    let mut both = loser(None);
    let object = deployment(&both);
    both.former = Some(stateful_set(&object));
    assert_eq!(stopped(&both), Some(vec!["Deployment", "StatefulSet"]));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut it = loser(None);
        let mut object = object.clone();
        change(&mut object);
        it.workload = Child::Ours(workload(&object));
        it
    };
    let none = Some(Vec::new());
    assert_eq!(
        stopped(&with(&|it| it["spec"]["replicas"] = json!(0))),
        none
    );
    let going = |it: &mut Value| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    };
    assert_eq!(stopped(&with(&going)), none);
    let mut foreign = loser(None);
    foreign.workload = Child::Foreign(workload(&object));
    assert_eq!(stopped(&foreign), none);
}

/// QUE-3, FW-24
#[test]
fn keda_releases_the_workload_before_its_pods_stop() {
    let mut scaled = loser(None);
    scaled.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Plan::Ensure(ensure) = plan(&scaled, now()) else {
        panic!()
    };
    assert!(ensure.stopped.is_empty());
    assert_eq!(ensure.workload, WorkloadStep::Keep);
    let Some(ScalingStep::Unwanted(removal)) = ensure.scaling else {
        panic!()
    };
    assert!(matches!(removal.scaled_object, ChildStep::Delete(_)));
    scaled.scaling.scaled_object = Child::Absent;
    assert_eq!(stopped(&scaled), Some(vec!["Deployment"]));
}

/// API-3
#[test]
fn paused_actor_keeps_its_pods() {
    let mut paused = loser(None);
    let annotations = json!({"annotations": {"asya.sh/paused": "true"}});
    paused.actor = observed(&actor(&annotations, &spec(&json!({})), &json!({}))).actor;
    assert!(matches!(plan(&paused, now()), Plan::Rest(_)));
}
