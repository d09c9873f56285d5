use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::transport::rabbitmq::KeptSetting;
use serde_json::{Value, json};

use super::queue_report;
use crate::broker::depths::ReportedDepth;
use crate::broker::{Depth, ReadyQueue};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{CommonOutcome, QueueState, RetiredQueues};
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::record::Key;
use crate::telemetry::events::EventReason;

fn on(transport: &str, status: &Value) -> Observed {
    let spec = spec(&json!({"transport": transport}));
    observed(&actor(&json!({}), &spec, status))
}

fn after(state: QueueState) -> CommonOutcome {
    CommonOutcome {
        queue: state,
        ..CommonOutcome::default()
    }
}

/// The status, requeue and Events of a reconcile.
fn report_queues(
    observed: &Observed,
    outcome: &CommonOutcome,
) -> (
    asya_shared::api::AsyncActorStatus,
    Option<Requeue>,
    Vec<EventReason>,
) {
    let mut status = observed.previous.clone();
    let report = queue_report(observed, outcome);
    report.fields.write_into(&mut status);
    let events = report.events.into_iter().map(|event| event.reason);
    (status, report.requeue, events.collect())
}

fn queue(observed: &Observed, state: QueueState) -> QueueStatus {
    report_queues(observed, &after(state)).0.queue.unwrap()
}

/// QUE-8 (a)
#[test]
fn verified_hash_changes_only_when_the_broker_was_queried() {
    let new = on("mq", &json!({}));
    let hash = Some(new.desired.as_ref().unwrap().queue_hash.clone());
    let created = QueueState::Created(ReadyQueue::default());
    let ready = QueueState::Ready(Some(ReadyQueue::default()));
    assert_eq!(queue(&new, created).verified_hash, hash);
    assert_eq!(queue(&new, ready).verified_hash, hash);
    let previously_verified = |hash: Value| {
        let queue = json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": hash});
        on("mq", &json!({"queue": queue}))
    };
    for old in [Value::Null, json!("h")] {
        let observed = previously_verified(old.clone());
        let status = queue(&observed, QueueState::Ready(None));
        assert_eq!(
            Some(status),
            observed.previous.queue,
            "the broker was not queried"
        );
        let status = queue(&observed, QueueState::Ready(Some(ReadyQueue::default())));
        assert_eq!(status.verified_hash, hash);
    }
}

/// QUE-13, OPS-7
#[test]
fn retired_queue_is_listed_reported_and_checked_next() {
    let previous = json!({"queue": {"transport": "other", "name": "asya-a", "url": "u", "verifiedGeneration": 1}});
    let mut observed = on("mq", &previous);
    let created = || after(QueueState::Created(ReadyQueue::default()));
    let (status, requeue, events) = report_queues(&observed, &created());
    assert_eq!(status.queue.as_ref().unwrap().transport, "mq");
    let listed = &status.retired_queues;
    assert_eq!(
        (
            &*listed[0].transport,
            listed[0].url.as_deref(),
            listed.len()
        ),
        ("other", Some("u"), 1)
    );
    assert_eq!(
        (requeue, events),
        (
            Some(Requeue::After(Duration::from_secs(1))),
            vec![EventReason::QueueRetired]
        )
    );

    observed = on("mq", &serde_json::to_value(&status).unwrap());
    let mut later = after(QueueState::Ready(None));
    let minutes = Duration::from_mins(5);
    later.retired.recheck_after = Some(minutes);
    let (again, requeue, events) = report_queues(&observed, &later);
    assert_eq!(
        again, status,
        "status is unchanged while the queue holds messages"
    );
    assert_eq!((requeue, events), (Some(Requeue::After(minutes)), vec![]));

    later.retired = RetiredQueues {
        forgettable: status.retired_queues.clone(),
        ..RetiredQueues::default()
    };
    let (emptied, requeue, _) = report_queues(&observed, &later);
    assert_eq!((emptied.retired_queues, requeue), (vec![], None));

    let kept = after(QueueState::NotChecked);
    assert_eq!(
        report_queues(&observed, &kept).0,
        status,
        "a reconcile that checks nothing forgets nothing"
    );
}

/// RMQ-5, OPS-7
#[test]
fn classic_queue_without_a_delivery_limit_is_reported_once() {
    let inactive = || {
        after(QueueState::Ready(Some(ReadyQueue {
            delivery_limit_inactive: true,
            ..ReadyQueue::default()
        })))
    };
    let first = on("dead", &json!({}));
    let (status, _, events) = report_queues(&first, &inactive());
    assert_eq!(events, [EventReason::DeliveryLimitInactive]);
    let mut next = on("dead", &serde_json::to_value(&status).unwrap());
    assert_eq!(report_queues(&next, &inactive()).2, [], "reported once");
    next.previous.queue.as_mut().unwrap().verified_generation = Some(1);
    assert_eq!(
        report_queues(&next, &inactive()).2,
        [],
        "not again for another generation"
    );
    next.previous.queue.as_mut().unwrap().verified_hash = Some("h".to_owned());
    assert_eq!(
        report_queues(&next, &inactive()).2,
        [EventReason::DeliveryLimitInactive],
        "again for another configuration"
    );
    let limited = after(QueueState::Ready(Some(ReadyQueue::default())));
    assert_eq!(report_queues(&first, &limited).2, []);
}

/// RMQ-5, OPS-7, QUE-48
#[test]
fn settings_that_an_existing_queue_keeps_are_reported_once_with_both_values() {
    let kept = || {
        let setting = |queue: &str, setting, argument, desired: &str| KeptSetting {
            queue: queue.to_owned(),
            setting,
            argument,
            desired: desired.to_owned(),
            found: "3".to_owned(),
        };
        after(QueueState::Ready(Some(ReadyQueue {
            kept_settings: vec![
                setting("asya-a", "dlq.maxRetryCount", "x-delivery-limit", "5"),
                setting("asya-a-dlq", "dlq.retentionDays", "x-message-ttl", "none"),
            ],
            ..ReadyQueue::default()
        })))
    };
    let observed = on("dead", &json!({}));
    let mut status = observed.previous.clone();
    let report = queue_report(&observed, &kept());
    report.fields.write_into(&mut status);
    let [event] = &*report.events else {
        panic!("{:?}", report.events)
    };
    assert_eq!(event.reason, EventReason::QueueSettingsKept);
    for part in [
        "queue asya-a has x-delivery-limit=3, dlq.maxRetryCount of the transport asks for 5",
        "queue asya-a-dlq has x-message-ttl=3, dlq.retentionDays of the transport asks for none",
        "once it is empty and nothing sends to it",
    ] {
        assert!(event.message.contains(part), "{}", event.message);
    }
    assert!(event.message.len() < 1024);
    let next = on("dead", &serde_json::to_value(&status).unwrap());
    assert_eq!(report_queues(&next, &kept()).2, []);
}

/// QUE-3
#[test]
fn queue_owned_by_another_actor_must_be_verified_again() {
    let previous = json!({"queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": "h"}});
    let mut lost = on("mq", &previous);
    let kept = queue(&lost, QueueState::NotChecked);
    assert_eq!(
        kept.verified_generation,
        Some(2),
        "the actor owns the queue"
    );
    if let Some(verified) = &mut lost.queues.verified {
        verified.permission = DeletePermission::HeldBy(Key::new("ns", "b"));
    }
    let known = queue(&lost, QueueState::NotChecked);
    assert_eq!((&*known.name, known.verified_generation), ("asya-a", None));
}

/// QUE-14
#[test]
fn own_dead_letter_queues_are_remembered_across_configurations() {
    let ready = || QueueState::Ready(Some(ReadyQueue::default()));
    let first = queue(&on("dead", &json!({})), ready());
    assert_eq!(first.dead_letters, ["asya-a-dlq"]);
    let with = |transport: &str, previous: &[&str]| {
        let queue = json!({"transport": transport, "name": "asya-a", "deadLetters": previous});
        on("dead", &json!({"queue": queue}))
    };
    let renamed = with("dead", &["asya-a-old"]);
    let both = queue(&renamed, ready()).dead_letters;
    assert_eq!(both, ["asya-a-dlq", "asya-a-old"]);
    let unqueried = queue(&renamed, QueueState::Ready(None)).dead_letters;
    assert_eq!(unqueried, ["asya-a-old"], "this reconcile created nothing");

    let off =
        json!({"queue": {"transport": "mq", "name": "asya-a", "deadLetters": ["asya-a-dlq"]}});
    assert_eq!(queue(&on("mq", &off), ready()).dead_letters, ["asya-a-dlq"]);
    assert_eq!(
        queue(&on("twin", &off), ready()).dead_letters,
        ["asya-a-dlq"],
        "the same broker under another transport name"
    );
    let moved = report_queues(&on("other", &off), &after(ready())).0;
    assert_eq!(moved.queue.unwrap().dead_letters, [""; 0]);
    assert_eq!(moved.retired_queues[0].dead_letters, ["asya-a-dlq"]);
}

/// FW-30, OPS-3: otherwise a new process would report the queue as ready without asking the broker.
#[test]
fn queue_is_verified_again_after_a_fault() {
    let queue =
        json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": "h"});
    let observed = on("mq", &json!({"queue": queue}));
    let verified = |state| report_queues(&observed, &after(state)).0.queue.unwrap();
    let fault = Fault::until_change(Reason::QueueMissing, "gone");
    let faulty = verified(QueueState::Fault(fault));
    assert_eq!(faulty.verified_generation, None);
    assert_eq!(
        faulty.verified_hash.as_deref(),
        Some("h"),
        "what to delete with the actor"
    );
    for state in [
        QueueState::NotChecked,
        QueueState::Deferred(Requeue::Backoff),
    ] {
        assert_eq!(verified(state).verified_generation, Some(2));
    }
}

/// QUE-20
#[test]
fn recreated_queue_is_empty_whatever_was_counted_before() {
    let mut observed = on("mq", &json!({}));
    let depth = Depth {
        queued: 7,
        processing: 1,
    };
    for counted in [
        ReportedDepth::Depth(depth),
        ReportedDepth::Unknown,
        ReportedDepth::Unchanged,
    ] {
        observed.depth = counted;
        let created = after(QueueState::Created(ReadyQueue::default()));
        let status = report_queues(&observed, &created).0;
        assert_eq!(
            (status.queued_messages, status.processing_messages),
            (Some(0), Some(0))
        );
    }
}

/// QUE-35
#[test]
fn status_says_that_the_broker_marks_the_queue_as_anothers_until_it_does_not() {
    let fault = |reason| QueueState::Fault(Fault::until_change(reason, String::new()));
    let deferred = || QueueState::Deferred(Requeue::Backoff);
    let ready = || QueueState::Ready(Some(ReadyQueue::default()));
    let marked = |before: &Value, state| {
        let observed = on("mq", before);
        report_queues(&observed, &after(state))
            .0
            .queue_marked_for_other
    };
    let (none, was) = (json!({}), json!({"queueMarkedForOther": true}));
    for (before, state, expected) in [
        (&none, fault(Reason::QueueConflict), Some(true)),
        (&none, deferred(), None),
        (&was, fault(Reason::QueueConflict), Some(true)),
        (&was, deferred(), Some(true)),
        (&was, QueueState::NotChecked, Some(true)),
        (&was, fault(Reason::BrokerUnreachable), Some(true)),
        (&was, fault(Reason::BrokerThrottled), Some(true)),
        (&was, fault(Reason::BrokerAuthFailed), Some(true)),
        (&was, fault(Reason::CredentialsMissing), Some(true)),
        (&none, fault(Reason::BrokerUnreachable), None),
        (&was, fault(Reason::QueueMismatch), None),
        (&was, fault(Reason::QueueMissing), None),
        (&was, fault(Reason::QueueDeletedRecently), None),
        (&was, ready(), None),
    ] {
        let text = format!("{before} {state:?}");
        assert_eq!(marked(before, state), expected, "{text}");
    }
    // Another actor holds the name, so the broker was not asked.
    let mut taken = on("mq", &was);
    taken.desired = Err(Fault::until_change(Reason::QueueConflict, String::new()));
    let (status, ..) = report_queues(&taken, &after(QueueState::NotChecked));
    assert_eq!(status.queue_marked_for_other, None);
}
