use std::time::Duration;

use asya_shared::api::QueueStatus;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{CountReport, DrainInputs, decide};
use crate::broker::Depth;
use crate::broker::depths::Depths;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::drain::{
    DrainState, KeptQueues, Messages, QueueCount, RemainingQueues, format_depth,
};
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::deletion::NextPhase;
use crate::reconcile::plan::finalizers::Finalizers;
use crate::reconcile::plan::plan;
use crate::reconcile::plan::rollout::may_replace_pods;
use crate::reconcile::plan::steps::{QueueStep, WorkloadStep};
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::record::Key;

const LAG: Duration = Duration::from_secs(10);

fn queue(name: &str) -> QueueStatus {
    QueueStatus {
        transport: "mq".to_owned(),
        name: name.to_owned(),
        ..QueueStatus::default()
    }
}

fn holds(queued: u64, processing: u64) -> Messages {
    Messages::Known(Depth { queued, processing })
}

fn unknown() -> Messages {
    Messages::Unknown(Fault {
        reason: Reason::QueueDeletionFailed,
        message: "no answer".to_owned(),
        requeue: Requeue::Backoff,
    })
}

/// The decision on queues `a`, `b`, … if the deletion was released this many seconds ago, according to status.
fn wait_for(messages: &[Messages], released: Option<i64>) -> DrainState {
    let names = ["a", "b", "c"].into_iter().map(queue);
    let queues = names.zip(messages).map(|(queue, messages)| QueueCount {
        queue,
        messages: messages.clone(),
    });
    let now = Timestamp::from_second(1000).unwrap();
    decide(&DrainInputs {
        queues: &queues.collect::<Vec<_>>(),
        released_at: released.map(|ago| Timestamp::from_second(1000 - ago).unwrap()),
        lag: LAG,
        now,
    })
}

/// QUE-40, QUE-42, SAFE-43
#[test]
fn actor_is_torn_down_when_its_queues_were_empty_twice_in_a_row() {
    let confirming = |seconds| DrainState::Confirming(Duration::from_secs(seconds));
    for (messages, released, expected) in [
        (vec![], None, confirming(10)),
        (vec![holds(0, 0)], None, confirming(10)),
        (vec![holds(0, 0)], Some(4), confirming(6)),
        (vec![holds(0, 0)], Some(10), DrainState::Empty),
        // Written by a clock that was ahead.
        (vec![holds(0, 0)], Some(-100), confirming(10)),
        (vec![holds(0, 0)], Some(-86_400), confirming(10)),
        (
            vec![Messages::NoQueue, holds(0, 0)],
            Some(60),
            DrainState::Empty,
        ),
    ] {
        assert_eq!(
            wait_for(&messages, released),
            expected,
            "{messages:?} {released:?}"
        );
    }
    let full = |name, queued, processing| RemainingQueues {
        with_messages: vec![(queue(name), Depth { queued, processing })],
        ..RemainingQueues::default()
    };
    for (messages, released, expected) in [
        (vec![holds(1, 0)], None, full("a", 1, 0)),
        (vec![holds(0, 1)], None, full("a", 0, 1)),
        (vec![holds(0, 0), holds(3, 0)], None, full("b", 3, 0)),
        (vec![holds(2, 0)], Some(60), full("a", 2, 0)),
    ] {
        let expected = DrainState::Waiting(expected);
        assert_eq!(
            wait_for(&messages, released),
            expected,
            "{messages:?} {released:?}"
        );
    }
}

/// QUE-42, FIN-3
#[test]
fn uncountable_messages_block_deletion_until_release() {
    for messages in [unknown(), Messages::Uncounted] {
        let DrainState::Waiting(remaining) = wait_for(&[holds(0, 0), messages.clone()], None)
        else {
            panic!("{messages:?}")
        };
        assert_eq!(
            (remaining.with_messages, remaining.uncounted),
            (vec![], vec![queue("b")])
        );
        assert_eq!(remaining.fault.is_some(), messages == unknown());
        assert_eq!(wait_for(&[messages], Some(60)), DrainState::Empty);
    }
}

/// QUE-40
#[test]
fn messages_are_reported_by_queue_and_number() {
    for (queued, processing, expected) in [
        (1, 0, "1 message"),
        (12, 0, "12 messages"),
        (10, 2, "12 messages (10 waiting, 2 unacknowledged)"),
    ] {
        assert_eq!(format_depth(Depth { queued, processing }), expected);
    }
    let DrainState::Waiting(remaining) = wait_for(&[holds(3, 0), unknown()], None) else {
        panic!()
    };
    assert_eq!(
        remaining.describe(),
        "queue a on transport mq holds 3 messages; queue b on transport mq may hold messages; they could not be counted"
    );
}

fn plan_of(drain: Option<DrainState>, metadata: &Value) -> Plan {
    let mut all = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    all.as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    let extra = json!({"queue": {"deletionPolicy": "Drain"}});
    let mut observed = observed(&actor(&all, &spec(&extra), &json!({})));
    observed.drain = drain;
    plan(&observed, Timestamp::from_second(1_767_225_700).unwrap())
}

/// QUE-40, QUE-41
#[test]
fn nothing_is_torn_down_before_the_queue_is_empty() {
    let waiting = || Some(DrainState::Waiting(RemainingQueues::default()));
    // Its pods must keep working.
    let plan = plan_of(waiting(), &json!({})).active();
    assert_eq!(plan.finalizers, Finalizers::Keep);
    let queue = plan.common.queue.as_ref().unwrap();
    assert_eq!(queue.step, QueueStep::Unmanaged);
    assert_eq!(plan.standalone().workload, WorkloadStep::Create);
    let confirming = plan_of(Some(DrainState::Confirming(LAG)), &json!({}));
    assert!(matches!(confirming, Plan::AwaitEmpty(wait) if wait == LAG));
    let kept = DrainState::KeepQueues(KeptQueues {
        namespace_uid: None,
        queues: RemainingQueues::default(),
    });
    for drain in [None, Some(DrainState::Empty), Some(kept)] {
        let Plan::Delete(plan) = plan_of(drain.clone(), &json!({})) else {
            panic!("{drain:?}")
        };
        assert!(
            matches!(plan.steps.next, NextPhase::FinalStep { .. }),
            "{drain:?}"
        );
    }
}

/// QUE-41
#[test]
fn target_is_rolled_during_the_wait_only_if_no_pod_is_injected() {
    let waiting = DrainState::Waiting(RemainingQueues::default());
    for (drain, injected, expected) in [
        (None, 0, true),
        (None, 2, true),
        (Some(&waiting), 0, true),
        (Some(&waiting), 1, false),
    ] {
        assert_eq!(
            may_replace_pods(drain, injected),
            expected,
            "{drain:?} {injected}"
        );
    }
}

/// QUE-43
#[test]
fn garbage_collected_children_are_recreated_once_the_foreground_finalizer_is_removed() {
    let mut finalizers = json!({"finalizers": ["foregroundDeletion", "asya.sh/finalizer"]});
    let waiting = || Some(DrainState::Waiting(RemainingQueues::default()));
    let plan = plan_of(waiting(), &finalizers).active();
    let change = &plan.finalizers;
    assert!(
        matches!(change, Finalizers::RemoveForeground(_)),
        "{change:?}"
    );
    assert_eq!(plan.standalone().workload, WorkloadStep::Create);
    let change = plan_of(waiting(), &json!({})).active().finalizers;
    assert_eq!(change, Finalizers::Keep);

    finalizers["annotations"] = json!({"asya.sh/paused": "true"});
    let Plan::Paused(rest) = plan_of(waiting(), &finalizers) else {
        panic!("a paused actor is left unchanged")
    };
    let rest = rest.common();
    let scaling = rest.scaling.as_ref().and_then(|it| it.fault.as_ref());
    assert_eq!((&rest.fault, scaling), (&None, None));
    assert!(matches!(
        plan_of(Some(DrainState::Empty), &finalizers),
        Plan::Delete(_)
    ));
}

/// QUE-20, QUE-40
#[test]
fn message_count_is_exact_when_deletion_begins_and_damped_afterwards() {
    let depths = Depths::default();
    let actor = Key::new("ns", "a");
    let depth = |queued| Depth {
        queued,
        processing: 0,
    };
    depths.record(&actor, Some(depth(3)));
    for (counted, report, expected) in [
        (7, CountReport::Reset, 7),
        (6, CountReport::AsReported, 7),
        (6, CountReport::Exact, 6),
        (5, CountReport::AsReported, 7),
    ] {
        let counted = Messages::Known(depth(counted));
        let records = report.recording(&counted);
        let reported = counted.clone().reported(report, |depth, reset| {
            depths.reported_after(&actor, depth, reset)
        });
        assert_eq!(reported, Messages::Known(depth(expected)));
        if let (Messages::Known(depth), Some(reset)) = (counted, records) {
            if reset {
                depths.forget(&actor);
            }
            depths.record(&actor, Some(depth));
        }
    }
}

/// QUE-44
#[test]
fn queue_that_holds_messages_stays_only_if_its_namespace_is_deleted() {
    let namespace =
        |metadata: Value| serde_json::from_value(json!({"metadata": metadata})).unwrap();
    let terminating = namespace(json!({"uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let not_deleted = namespace(json!({"uid": "n"}));
    let remaining = RemainingQueues::default;
    let kept = |uid: Option<&str>| {
        Some(KeptQueues {
            namespace_uid: uid.map(str::to_owned),
            queues: remaining(),
        })
    };
    for (namespace, expected) in [
        (Some(&not_deleted), None),
        (Some(&terminating), kept(Some("n"))),
        (None, kept(None)),
    ] {
        assert_eq!(KeptQueues::of_terminating(namespace, remaining()), expected);
    }
}

/// QUE-45: the broker went with the namespace after the queue had been empty.
#[test]
fn queue_whose_broker_goes_with_its_namespace_does_not_hold_it_up() {
    let terminating: k8s_openapi::api::core::v1::Namespace = serde_json::from_value(
        json!({"metadata": {"uid": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    )
    .unwrap();
    let wait = wait_for(&[unknown()], Some(60));
    assert_eq!(
        wait,
        DrainState::Empty,
        "it was empty, and is deleted only if it still is"
    );
    let count = |messages| QueueCount {
        queue: queue("q"),
        messages,
    };
    let remaining = RemainingQueues::of(&[count(unknown())]).unwrap();
    assert!(KeptQueues::of_terminating(Some(&terminating), remaining).is_some());
    assert_eq!(RemainingQueues::of(&[count(Messages::NoQueue)]), None);
}
