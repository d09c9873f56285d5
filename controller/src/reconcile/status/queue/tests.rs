use std::time::Duration;

use asya_shared::api::QueueStatus;
use serde_json::{Value, json};

use super::tell;
use crate::broker::Serving;
use crate::fault::Requeue;
use crate::reconcile::model::known_queues::Hold;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState, RetiredQueues};
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::record::Key;
use crate::telemetry::events::EventReason;

fn on(transport: &str, status: &Value) -> Observed {
    let spec = spec(&json!({"transport": transport}));
    observed(&actor(&json!({}), &spec, status))
}

fn after(state: QueueState) -> Ensured {
    Ensured {
        queue: state,
        ..Ensured::default()
    }
}

/// The status, requeue and Events of a reconcile.
fn told(
    observed: &Observed,
    ensured: &Ensured,
) -> (
    asya_shared::api::AsyncActorStatus,
    Option<Requeue>,
    Vec<EventReason>,
) {
    let mut status = observed.previous.clone();
    let told = tell(observed, ensured, &mut status);
    let notes = told.notes.into_iter().map(|(note, _)| note);
    (status, told.retry, notes.collect())
}

fn queue(observed: &Observed, state: QueueState) -> QueueStatus {
    told(observed, &after(state)).0.queue.unwrap()
}

/// QUE-8
#[test]
fn verified_hash_changes_only_when_the_broker_was_asked() {
    let new = on("mq", &json!({}));
    let hash = Some(new.desired.as_ref().unwrap().queue_hash.clone());
    let (made, seen) = (
        QueueState::Created(Serving::default()),
        QueueState::Ready(Some(Serving::default())),
    );
    assert_eq!(queue(&new, made).verified_hash, hash);
    assert_eq!(queue(&new, seen).verified_hash, hash);
    let of_old = |hash: Value| {
        let queue = json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": hash});
        on("mq", &json!({"queue": queue}))
    };
    for old in [Value::Null, json!("h")] {
        let observed = of_old(old.clone());
        let status = queue(&observed, QueueState::Ready(None));
        assert_eq!(
            Some(status),
            observed.previous.queue,
            "who was not asked is no news"
        );
        let status = queue(&observed, QueueState::Ready(Some(Serving::default())));
        assert_eq!(status.verified_hash, hash);
    }
}

/// QUE-13, OPS-7
#[test]
fn retired_queue_is_listed_reported_and_checked_next() {
    let before = json!({"queue": {"transport": "other", "name": "asya-a", "url": "u", "verifiedGeneration": 1}});
    let mut observed = on("mq", &before);
    let made = || after(QueueState::Created(Serving::default()));
    let (status, retry, notes) = told(&observed, &made());
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
        (retry, notes),
        (
            Some(Requeue::After(Duration::from_secs(1))),
            vec![EventReason::QueueRetired]
        )
    );

    observed = on("mq", &serde_json::to_value(&status).unwrap());
    let mut later = after(QueueState::Ready(None));
    let minutes = Duration::from_mins(5);
    later.retired.again = Some(minutes);
    let (again, retry, notes) = told(&observed, &later);
    assert_eq!(again, status, "nothing is written while it holds messages");
    assert_eq!((retry, notes), (Some(Requeue::After(minutes)), vec![]));

    *later.retired = RetiredQueues {
        gone: status.retired_queues.clone(),
        again: None,
    };
    let (emptied, retry, _) = told(&observed, &later);
    assert_eq!((emptied.retired_queues, retry), (vec![], None));

    let kept = after(QueueState::Untouched);
    assert_eq!(
        told(&observed, &kept).0,
        status,
        "a pass that does nothing forgets nothing"
    );
}

/// RMQ-5, OPS-7
#[test]
fn classic_queue_without_a_delivery_limit_is_reported_once() {
    let inactive = || {
        after(QueueState::Ready(Some(Serving {
            url: None,
            delivery_limit_inactive: true,
        })))
    };
    let first = on("dead", &json!({}));
    let (status, _, notes) = told(&first, &inactive());
    assert_eq!(notes, [EventReason::DeliveryLimitInactive]);
    let mut next = on("dead", &serde_json::to_value(&status).unwrap());
    assert_eq!(told(&next, &inactive()).2, [], "and then no more");
    next.previous.queue.as_mut().unwrap().verified_generation = Some(1);
    assert_eq!(told(&next, &inactive()).2, [], "nor for another generation");
    next.previous.queue.as_mut().unwrap().verified_hash = Some("h".to_owned());
    assert_eq!(
        told(&next, &inactive()).2,
        [EventReason::DeliveryLimitInactive],
        "but for another configuration"
    );
    let limited = after(QueueState::Ready(Some(Serving::default())));
    assert_eq!(told(&first, &limited).2, []);
}

/// QUE-3
#[test]
fn queue_owned_by_another_actor_must_be_verified_again() {
    let before = json!({"queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": "h"}});
    let mut lost = on("mq", &before);
    let kept = queue(&lost, QueueState::Untouched);
    assert_eq!(kept.verified_generation, Some(2), "it is the actor's");
    if let Some(verified) = &mut lost.queues.verified {
        verified.hold = Hold::Lost(Key::new("ns", "b"));
    }
    let known = queue(&lost, QueueState::Untouched);
    assert_eq!((&*known.name, known.verified_generation), ("asya-a", None));
}

/// QUE-14
#[test]
fn own_dead_letter_queues_are_remembered_across_configurations() {
    let served = || QueueState::Ready(Some(Serving::default()));
    let first = queue(&on("dead", &json!({})), served());
    assert_eq!(first.dead_letters, ["asya-a-dlq"]);
    let with = |transport: &str, before: &[&str]| {
        let queue = json!({"transport": transport, "name": "asya-a", "deadLetters": before});
        on("dead", &json!({"queue": queue}))
    };
    let renamed = with("dead", &["asya-a-old"]);
    let both = queue(&renamed, served()).dead_letters;
    assert_eq!(both, ["asya-a-dlq", "asya-a-old"]);
    let unasked = queue(&renamed, QueueState::Ready(None)).dead_letters;
    assert_eq!(unasked, ["asya-a-old"], "nothing was made in this pass");

    let off =
        json!({"queue": {"transport": "mq", "name": "asya-a", "deadLetters": ["asya-a-dlq"]}});
    assert_eq!(
        queue(&on("mq", &off), served()).dead_letters,
        ["asya-a-dlq"]
    );
    assert_eq!(
        queue(&on("twin", &off), served()).dead_letters,
        ["asya-a-dlq"],
        "the same broker by another name"
    );
    let moved = told(&on("other", &off), &after(served())).0;
    assert_eq!(moved.queue.unwrap().dead_letters, [""; 0]);
    assert_eq!(moved.retired_queues[0].dead_letters, ["asya-a-dlq"]);
}
