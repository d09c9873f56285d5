//! Purges delete no more than they may.

use super::*;

async fn purged(broker: &mut Memory, shared: bool, count: u64) -> Result<DlqOutcome, Failure> {
    let never = Interrupt::never();
    purge(broker, &names(), &dlq(shared), None, count, &never).await
}

#[tokio::test]
async fn purge_of_a_shared_queue_spares_the_messages_of_others() {
    let (mine, other) = (message("1", "embed"), message("2", "chat"));
    for (shared, left) in [(false, &[][..]), (true, &[&*other])] {
        let mut broker = Memory::with(&[("dlq", &[&*mine, &*other])]);
        let done = purged(&mut broker, shared, 2).await;
        assert_eq!(done.unwrap().others, left.len() as u64);
        assert_eq!(broker.bodies("dlq"), left);
    }
}

/// The user has consented to two; a third arrived meanwhile.
#[tokio::test]
async fn purge_deletes_no_more_than_what_was_consented_to() {
    for shared in [false, true] {
        let mine = message("1", "embed");
        let mut broker = Memory::with(&[("dlq", &[&*mine, &*mine, &*mine])]);
        let done = purged(&mut broker, shared, 2).await;
        assert_eq!(done.unwrap(), outcome(2, 0));
        assert_eq!(broker.bodies("dlq"), [&*mine]);
    }
}

#[tokio::test]
async fn dead_letter_that_arrives_during_a_purge_stays() {
    let mut broker = Memory::with(&[("dlq", &["1", "2"])]);
    broker.arrives = Some(Stored {
        body: "3".to_owned(),
        ..Stored::default()
    });
    let done = purged(&mut broker, false, 2).await;
    assert_eq!(done.unwrap(), outcome(2, 0));
    assert_eq!(broker.bodies("dlq"), ["3"]);
}

/// Meanwhile, another program may have taken some.
#[tokio::test]
async fn purge_says_how_many_the_broker_has_deleted() {
    let mut broker = Memory::with(&[("dlq", &["1", "2"])]);
    let done = purged(&mut broker, false, 5).await;
    assert_eq!(done.unwrap(), outcome(2, 0));
    assert!(broker.bodies("dlq").is_empty());
}

/// On SQS, `PurgeQueue` would delete messages in flight as well, although they would come back.
#[tokio::test]
async fn purge_spares_what_others_hold() {
    let mut broker = Memory::with(&[("dlq", &["held", "1", "2"])]);
    let held = broker.take("dlq", 1).await.unwrap();
    let done = purged(&mut broker, false, 2).await;
    assert_eq!(done.unwrap(), outcome(2, 0));
    broker.put_back("dlq", held).await.unwrap();
    assert_eq!(broker.bodies("dlq"), ["held"]);
}

#[tokio::test]
async fn deletion_counts_only_once_the_broker_has_processed_it() {
    let mine = message("1", "embed");
    let mut broker = Memory::with(&[("dlq", &[&*mine])]);
    broker.is_lost_after_removals = true;
    let failed = purged(&mut broker, true, 1).await;
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("done before that: 0"), "{text}");
}
