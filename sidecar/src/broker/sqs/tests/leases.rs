//! Leases that expire, because they are not extended.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use super::fake::{Fake, error};
use super::requests::{STUCK, Source, settings};
use crate::broker::sqs::credentials::CachedCredentials;
use crate::broker::sqs::{BrokerMetrics, Sqs};
use crate::broker::{Broker as _, Demand, Event, Receipt, Settlement};
use crate::config;

/// A broker that has received this many messages, with a visibility timeout of 1 s that is not extended.
async fn unextended(
    messages: usize,
) -> (
    Fake,
    Sqs,
    BrokerMetrics,
    Vec<Receipt>,
    UnboundedReceiver<Event>,
) {
    let mut received = false;
    let fake = Fake::start(move |seen| match seen.action.as_str() {
        "ReceiveMessage" if !std::mem::replace(&mut received, true) => {
            let message = |_| json!({"MessageId": "m", "ReceiptHandle": "h", "Body": "{}"});
            let messages: Vec<_> = (0..messages).map(message).collect();
            Some((200, json!({"Messages": messages})))
        }
        "ReceiveMessage" => None,
        "DeleteMessage" | "ChangeMessageVisibility" => Some((200, json!({}))),
        _ => Some(error("InternalError")),
    })
    .await;
    let (events, mut told) = unbounded_channel();
    let settings = config::SqsConfig {
        visibility: Duration::from_secs(1),
        ..settings(&fake.url)
    };
    let credentials = CachedCredentials::new(Source::new(&["KEY"]));
    let metrics = BrokerMetrics::default();
    let queue = "asya-foo".to_owned();
    let broker = Sqs::start_with(credentials, &settings, queue, events, metrics.clone());
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

/// SC-40, SC-73: after an outage of SQS, every message that was in flight would be processed twice.
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
