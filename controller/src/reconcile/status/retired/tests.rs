use asya_shared::api::QueueStatus;
use serde_json::{Value, json};

use super::{RetiredReport, list};
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::plan_check;
use crate::reconcile::plan::retired::tests::{moved, plain, queue, transports};
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::record::Key;

fn outcomes(report: &RetiredReport) -> (Vec<&str>, Vec<&str>) {
    let messages = report.messages.iter();
    let outcomes = messages.map(|text| {
        text.split_once(": ")
            .map_or(&**text, |(_, outcome)| outcome)
    });
    (transports(&report.queues), outcomes.collect())
}

/// QUE-13
#[test]
fn verified_queue_is_retired_when_another_one_is_verified() {
    let observed = plain("other", &[]);
    let report = list(&observed, Some(&queue("mq")), &RetiredQueues::default());
    assert_eq!(
        report.queues,
        [QueueStatus {
            verified_hash: Some("h".to_owned()),
            ..queue("other")
        }],
    );
    assert_eq!(
        report.messages,
        [
            "queue asya-a on transport other is no longer used by this actor: it is deleted once it is empty, or with this actor at the latest"
        ]
    );
    assert_eq!(
        list(
            &plain("mq", &["other"]),
            Some(&queue("mq")),
            &RetiredQueues::default()
        ),
        RetiredReport {
            queues: vec![queue("other")],
            messages: Vec::new()
        },
        "announced only once"
    );
    assert_eq!(
        list(
            &observed,
            observed.previous.queue.as_ref(),
            &RetiredQueues::default()
        ),
        RetiredReport::default(),
        "not before the new queue exists"
    );
    assert_eq!(
        list(&observed, None, &RetiredQueues::default()),
        RetiredReport::default()
    );
}

/// QUE-13
#[test]
fn retired_queue_is_unlisted_when_it_is_deleted_or_desired_again() {
    let observed = plain("other", &["dead", "nowhere"]);
    let gone = RetiredQueues {
        forgettable: vec![queue("dead")],
        ..RetiredQueues::default()
    };
    let report = list(&observed, Some(&queue("mq")), &gone);
    assert_eq!(transports(&report.queues), ["nowhere", "other"]);
    let back = plain("other", &["mq", "dead"]);
    let report = list(&back, Some(&queue("mq")), &RetiredQueues::default());
    assert_eq!(transports(&report.queues), ["dead", "other"]);
}

/// QUE-13, QUE-3, QUE-7
#[test]
fn queue_that_is_not_ours_to_delete_is_dropped_with_a_message() {
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    let stays = "it is kept, because queue.deletionPolicy is Retain";
    let kept = moved(&json!({}), &retain, "other", &["dead", "nowhere"]);
    assert_eq!(
        outcomes(&list(&kept, Some(&queue("mq")), &RetiredQueues::default())),
        (vec![], vec![stays; 3])
    );
    let fixed = plain("fixed", &[]);
    let report = list(&fixed, Some(&queue("mq")), &RetiredQueues::default());
    assert_eq!(
        outcomes(&report),
        (
            vec![],
            vec!["it is kept, because the transport has autoCreate: false"]
        )
    );
    let mut lost = plain("other", &["dead"]);
    let owner = DeletePermission::HeldBy(Key::new("b", "a"));
    lost.queues.retired[0].permission = owner.clone();
    lost.queues.verified.as_mut().unwrap().permission = owner;
    let report = list(&lost, Some(&queue("mq")), &RetiredQueues::default());
    assert_eq!(outcomes(&report), (vec![], vec!["it belongs to b/a"; 2]));
    let skip = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
    let skipped = moved(&skip, &json!({}), "other", &[]);
    let report = list(&skipped, Some(&queue("mq")), &RetiredQueues::default());
    assert_eq!(
        transports(&report.queues),
        ["other"],
        "the annotation may be removed again"
    );
}

/// QUE-13
#[test]
fn queue_that_may_exist_is_listed_only_if_a_new_process_would_forget_it() {
    let listed = |extra: &Value, maybe_created: QueueStatus, verified, checked: &RetiredQueues| {
        let mut observed = moved(&json!({}), extra, "mq", &[]);
        observed.queues.maybe_created = vec![maybe_created];
        let current = QueueStatus {
            verified_generation: verified,
            ..queue("mq")
        };
        let report = list(&observed, Some(&current), checked);
        assert_eq!(report.messages, [""; 0]);
        let listed = report.queues.first();
        listed.map(|it| (it.transport.clone(), it.unconfirmed))
    };
    let none = json!({});
    let unchecked = RetiredQueues::default();
    let current = Some(2);
    let unconfirmed = Some(("other".to_owned(), true));
    let confirmed = Some(("other".to_owned(), false));
    assert_eq!(
        listed(&none, queue("other"), current, &unchecked),
        unconfirmed
    );
    assert_eq!(
        listed(&none, queue("other"), Some(1), &unchecked),
        None,
        "looked up again in any case"
    );
    assert_eq!(listed(&none, queue("other"), None, &unchecked), None);
    let stored = || QueueStatus {
        unconfirmed: true,
        ..queue("other")
    };
    assert_eq!(
        listed(&none, stored(), Some(1), &unchecked),
        unconfirmed,
        "does not flap"
    );
    let found = RetiredQueues {
        confirmed: vec![queue("other")],
        ..RetiredQueues::default()
    };
    for verified in [current, None] {
        assert_eq!(listed(&none, stored(), verified, &found), confirmed);
        assert_eq!(listed(&none, queue("other"), verified, &found), confirmed);
    }
    let gone = RetiredQueues {
        forgettable: vec![queue("other")],
        ..RetiredQueues::default()
    };
    assert_eq!(listed(&none, stored(), current, &gone), None);
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    assert_eq!(listed(&retain, stored(), current, &unchecked), None);
    assert_eq!(
        listed(&none, queue("mq"), current, &unchecked),
        None,
        "the actor's own"
    );
}

/// QUE-13
#[test]
fn renaming_a_transport_retires_no_queue() {
    let same = |observed: &Observed| {
        let report = list(observed, Some(&queue("mq")), &RetiredQueues::default());
        (
            report == RetiredReport::default(),
            plan_check(observed).queues.is_empty(),
        )
    };
    assert_eq!(same(&plain("twin", &[])), (true, true));
    assert_eq!(same(&plain("mq", &["twin"])), (true, true));
    assert!(!same(&plain("other", &[])).0, "another broker");

    let hash = plain("mq", &[]).desired.unwrap().queue_hash.clone();
    let recorded = |hash: &str| {
        let status = json!({"queue": {"transport": "previous", "name": "asya-a", "verifiedGeneration": 1, "verifiedHash": hash}});
        observed(&actor(&json!({}), &spec(&json!({})), &status))
    };
    assert!(same(&recorded(&hash)).0, "renamed in the configuration");
    assert!(!same(&recorded("h")).0, "recorded with an unknown hash");
}

/// QUE-36
#[test]
fn queue_in_another_account_is_retired_but_not_the_same_queue_by_another_transport() {
    let at = |url: &str| QueueStatus {
        url: Some(format!("https://sqs.eu-west-1.amazonaws.com/{url}")),
        ..queue("mq")
    };
    let own = at("111111111111/asya-a");
    let other = at("222222222222/asya-a");
    for (permission, current, retires) in [
        // The old account is no longer configured.
        (DeletePermission::SameAsDesired, &other, true),
        (DeletePermission::SameAsDesired, &own, false),
        (DeletePermission::SameAsDesired, &queue("mq"), false),
        // Only one of the two transports specifies its account.
        (DeletePermission::Allowed, &own, false),
        (DeletePermission::Allowed, &other, true),
    ] {
        let mut observed = plain("other", &["dead"]);
        let verified = observed.queues.verified.as_mut().unwrap();
        verified.queue.url.clone_from(&own.url);
        verified.permission = permission.clone();
        observed.queues.retired[0].permission = permission.clone();
        observed.queues.retired[0].queue.url.clone_from(&own.url);
        let report = list(&observed, Some(current), &RetiredQueues::default());
        let expected: &[&str] = if retires { &["dead", "other"] } else { &[] };
        assert_eq!(
            transports(&report.queues),
            expected,
            "{permission:?} {:?}",
            current.url
        );
        assert_eq!(
            report.messages.len(),
            usize::from(retires),
            "the queue that was just retired"
        );
    }
}
