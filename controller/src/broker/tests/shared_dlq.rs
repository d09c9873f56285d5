//! How often a check of many queues reads a dead letter queue that they share.

use std::collections::BTreeMap;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::broker::QueueCheck;

/// Reads by operation and queue.
type Reads = Arc<Mutex<BTreeMap<(String, String), usize>>>;

async fn answer(State(reads): State<Reads>, headers: HeaderMap, body: String) -> String {
    let body: Value = serde_json::from_str(&body).unwrap();
    let operation = headers["x-amz-target"].to_str().unwrap();
    let operation = operation.trim_start_matches("AmazonSQS.");
    let queue = body["QueueName"]
        .as_str()
        .or_else(|| body["QueueUrl"].as_str().unwrap().rsplit('/').next());
    let queue = queue.unwrap().to_owned();
    let is_dlq = queue == "asya-dlq";
    *reads
        .lock()
        .entry((operation.to_owned(), queue.clone()))
        .or_default() += 1;
    let redrive =
        json!({"deadLetterTargetArn": "arn:aws:sqs:us-east-1:1:asya-dlq", "maxReceiveCount": 3});
    match operation {
        "GetQueueUrl" => json!({"QueueUrl": format!("http://sqs/1/{queue}")}),
        "GetQueueAttributes" => json!({"Attributes": {
            "QueueArn": format!("arn:aws:sqs:us-east-1:1:{queue}"), "VisibilityTimeout": "600",
            "MessageRetentionPeriod": "1209600", "RedrivePolicy": redrive.to_string(),
        }}),
        "ListQueueTags" if is_dlq => json!({"Tags": {"asya.sh/cluster": HERE, "asya.sh/type": "dlq"}}),
        "ListQueueTags" => json!({"Tags": {
            "asya.sh/cluster": HERE, "asya.sh/namespace": "ns", "asya.sh/actor": queue.trim_start_matches("asya-"),
            "asya.sh/uid": "uid",
        }}),
        other => panic!("{other}"),
    }
    .to_string()
}

/// QUE-21: AWS allows so few reads of tags that one per actor is throttled.
#[tokio::test]
async fn shared_dead_letter_queue_is_read_once_per_check() {
    let reads = Reads::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new()
        .route("/", post(answer))
        .with_state(reads.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let queues = json!({"dlq": {"enabled": true}});
    let config = json!({"endpoint": endpoint, "region": "us-east-1", "queues": queues});
    let transport = transport("sqs", &config);
    let client = client(&transport).await.unwrap();
    let queues: Vec<ActorQueue> = (0..30)
        .map(|number| queue_of(&transport, &format!("q{number}")))
        .collect();
    for observation in client.observe_many(&queues).await {
        let check = observation.unwrap().check;
        assert!(matches!(check, QueueCheck::Ready(_)), "{check:?}");
    }
    let of_dlq = |operation: &str| {
        reads
            .lock()
            .get(&(operation.to_owned(), "asya-dlq".to_owned()))
            .copied()
    };
    assert_eq!(of_dlq("ListQueueTags"), Some(1));
    assert_eq!(of_dlq("GetQueueAttributes"), Some(1));
    assert_eq!(reads.lock().values().sum::<usize>(), 3 * 31);
    // A single one, as in a reconcile, is read with it.
    client.observe(&queues[0]).await.unwrap();
    assert_eq!(of_dlq("ListQueueTags"), Some(2));
}
