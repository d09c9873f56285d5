//! Leases that expire because they are not extended.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fake::{Answer, Fake, error};
use super::requests::{STUCK, Source, settings};
use crate::broker::sqs::credentials::CachedCredentials;
use crate::broker::sqs::{BrokerMetrics, Sqs};
use crate::broker::{Broker as _, Demand, Event, Receipt, Settlement};
use crate::config;

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_mins(5);

/// A server, a broker with its metrics, and the messages that it has received.
type Found = (
    Fake,
    Sqs,
    BrokerMetrics,
    Vec<Receipt>,
    UnboundedReceiver<Event>,
);

/// A broker that has received this many messages, with a visibility timeout of 1 s that is not extended.
async fn unextended(messages: usize) -> Found {
    start(messages, SHORT, Vec::new(), false).await
}

/// `answers` are those to requests that release messages, the last one repeated. If `is_suspended`, the process sleeps
/// for the visibility timeout while SQS answers the poll.
async fn start(
    messages: usize,
    visibility: Duration,
    mut answers: Vec<Answer>,
    is_suspended: bool,
) -> Found {
    let mut received = false;
    let fake = Fake::start(move |seen| match seen.action.as_str() {
        "ReceiveMessage" if !std::mem::replace(&mut received, true) => {
            if is_suspended {
                // The server runs in the same thread, so this suspends the whole process.
                std::thread::sleep(visibility);
            }
            let message = |_| json!({"MessageId": "m", "ReceiptHandle": "h", "Body": "{}"});
            let messages: Vec<_> = (0..messages).map(message).collect();
            Some((200, json!({"Messages": messages})))
        }
        "ReceiveMessage" => None,
        "ChangeMessageVisibility" if answers.len() > 1 => Some(answers.remove(0)),
        "ChangeMessageVisibility" if !answers.is_empty() => Some(answers[0].clone()),
        "DeleteMessage" | "ChangeMessageVisibility" => Some((200, json!({}))),
        _ => Some(error("InternalError")),
    })
    .await;
    let (events, mut told) = unbounded_channel();
    let settings = config::SqsConfig {
        visibility,
        wait: Duration::ZERO,
        ..settings(&fake.url)
    };
    let credentials = CachedCredentials::new(Source::new(&["KEY"]));
    let metrics = BrokerMetrics::default();
    let queue = "asya-foo".to_owned();
    let broker = Sqs::start_with(
        credentials,
        &settings,
        queue,
        events,
        metrics.clone(),
        CancellationToken::new(),
    );
    broker.demand(Demand {
        slots: 1,
        lookahead: messages - 1,
    });
    let mut receipts = Vec::new();
    while receipts.len() < messages {
        let event = timeout(STUCK, told.recv()).await.expect("an event");
        if let Some(Event::Delivered(delivery)) = event {
            receipts.push(delivery.receipt);
        }
    }
    (fake, broker, metrics, receipts, told)
}

/// Waits until this many leases are lost.
async fn lost(metrics: &BrokerMetrics, count: u64) {
    let deadline = Instant::now() + STUCK;
    while metrics.leases_lost.get() < count {
        assert!(Instant::now() < deadline, "the lease is not lost");
        sleep(Duration::from_millis(20)).await;
    }
}

/// SC-40: otherwise the message stays hidden for the rest of its visibility timeout, which may be hours.
#[tokio::test]
async fn giving_back_is_retried_while_the_visibility_timeout_lasts_unless_it_is_refused() {
    let forbidden = (403, error("AccessDeniedException").1);
    let expired = (403, error("InvalidSignatureException").1);
    let unavailable = (503, json!("Service Unavailable"));
    let done = (200, json!({}));
    for (visibility, answers, expected) in [
        (LONG, vec![unavailable.clone(), done.clone()], 2..=2),
        (
            LONG,
            vec![error("ThrottlingException"), expired, done],
            3..=3,
        ),
        (LONG, vec![forbidden], 1..=1),
        (LONG, vec![error("MessageNotInflight")], 1..=1),
        // SC-73: SQS may have released it, and another consumer may have received it.
        (LONG, vec![(504, json!("Gateway Timeout"))], 1..=1),
        // After 0, 0.2 and 0.6 s.
        (SHORT, vec![unavailable], 1..=3),
    ] {
        let (fake, broker, _, receipts, _events) =
            start(1, visibility, answers.clone(), false).await;
        let settled = broker.settle(&receipts[0], Settlement::RequeueNow);
        timeout(STUCK, settled).await.expect("settled");
        let requests = fake.seen(&["ChangeMessageVisibility"]);
        let count = requests.len();
        assert!(expected.contains(&count), "{answers:?}: {count}");
        assert!(
            requests
                .iter()
                .all(|seen| seen.body["VisibilityTimeout"] == 0)
        );
    }
}

/// SC-40: until the delay that it asked for has passed, nobody else can receive it.
#[tokio::test]
async fn giving_back_with_a_delay_is_retried_for_that_time_if_it_may_have_been_done() {
    let answers = vec![(504, json!("Gateway Timeout"))];
    let (fake, broker, _, receipts, _events) = start(1, LONG, answers, false).await;
    let settled = broker.settle(&receipts[0], Settlement::Requeue);
    timeout(STUCK, settled).await.expect("settled");
    // After 0, 0.2, 0.6 and 1.4 s, of 2 s.
    let count = fake.seen(&["ChangeMessageVisibility"]).len();
    assert!((2..=4).contains(&count), "{count}");
}

/// SC-37, SC-73: this process was suspended, so nothing has noticed that the lease has ended.
#[tokio::test]
async fn message_whose_lease_has_ended_by_the_clock_is_not_given_back() {
    let (fake, broker, metrics, receipts, _events) = start(2, SHORT, Vec::new(), true).await;
    assert_eq!(metrics.leases_lost.get(), 0, "not noticed");
    for receipt in &receipts {
        let settled = broker.settle(receipt, Settlement::RequeueNow);
        timeout(STUCK, settled).await.expect("settled");
    }
    assert_eq!(fake.seen(&["ChangeMessageVisibility"]).len(), 0);
    assert_eq!(
        (metrics.leases_lost.get(), broker.shared.leases.count()),
        (2, 0)
    );
}

/// SC-37, SC-73: as the last one, while it waits to try again.
#[tokio::test]
async fn no_attempt_to_give_back_follows_the_end_of_the_lease() {
    let unavailable = vec![(503, json!("Service Unavailable"))];
    let (fake, broker, _, receipts, _events) = start(1, SHORT * 3, unavailable, false).await;
    let settling = tokio::spawn(broker.settle(&receipts[0], Settlement::RequeueNow));
    let deadline = Instant::now() + STUCK;
    while fake.seen(&["ChangeMessageVisibility"]).is_empty() {
        assert!(Instant::now() < deadline, "no attempt");
        sleep(Duration::from_millis(5)).await;
    }
    // Everything is in one thread. The attempt is answered first.
    sleep(Duration::from_millis(50)).await;
    let before = fake.seen(&["ChangeMessageVisibility"]).len();
    std::thread::sleep(SHORT * 3);
    timeout(STUCK, settling)
        .await
        .expect("an end")
        .expect("settled");
    assert_eq!(fake.seen(&["ChangeMessageVisibility"]).len(), before);
}

/// SC-37: the time in which this process was suspended is part of the visibility timeout.
#[tokio::test]
async fn message_that_was_received_by_a_suspended_process_is_not_started() {
    let (fake, broker, metrics, receipts, _events) = start(1, SHORT, Vec::new(), true).await;
    assert!(!broker.begin(&receipts[0]));
    assert_eq!(metrics.leases_lost.get(), 1);
    assert_eq!(fake.seen(&["ChangeMessageVisibility"]).len(), 0);
}

/// SC-40, SC-73: otherwise an SQS outage would cause every message in flight to be processed twice.
#[tokio::test]
async fn message_is_deleted_once_its_result_is_sent_even_if_its_lease_was_lost() {
    let (fake, broker, metrics, receipts, _events) = unextended(1).await;
    assert!(broker.begin(&receipts[0]));
    lost(&metrics, 1).await;
    let settled = broker.settle(&receipts[0], Settlement::Acknowledge);
    timeout(STUCK, settled).await.expect("settled");
    assert_eq!(fake.seen(&["DeleteMessage"]).len(), 1);
}

/// SC-37, SC-73: another consumer may have it already.
#[tokio::test]
async fn message_whose_lease_is_lost_is_neither_started_nor_given_back() {
    let (fake, broker, metrics, receipts, _events) = unextended(3).await;
    assert!(broker.begin(&receipts[0]));
    lost(&metrics, 3).await;
    assert!(
        !receipts[0].is_lost(),
        "its call and its result are finished"
    );
    assert!(!broker.begin(&receipts[1]));
    for receipt in &receipts[1..] {
        let settled = broker.settle(receipt, Settlement::RequeueNow);
        timeout(STUCK, settled).await.expect("settled");
    }
    assert_eq!(fake.seen(&["ChangeMessageVisibility"]).len(), 0);
    assert_eq!(broker.shared.leases.count(), 1, "the others make room");
    assert_eq!(metrics.leases_lost.get(), 3, "each is counted once");
}
