//! Queues that two clusters create at the same moment (QUE-32).

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::reasons::{Reply, client_of_server};
use super::*;

/// Whether the queue is another cluster's, by its id.
const OTHERS: [(&str, bool); 2] = [("cluster-a", true), ("cluster-c", false)];

fn check(result: Result<crate::broker::ReadyQueue, BrokerError>, taken_by: Option<&str>) {
    match (result, taken_by) {
        (Ok(_), None) => {}
        (Err(BrokerError::QueueNameTaken(text)), Some(other)) => {
            assert!(text.contains(other), "{text}");
        }
        (result, _) => panic!("{taken_by:?}: {result:?}"),
    }
}

/// QUE-32
#[tokio::test]
async fn rabbitmq_queue_that_another_cluster_marks_during_the_creation_belongs_to_the_smaller_id() {
    for (other, is_taken) in OTHERS {
        let marked = Arc::new(AtomicBool::new(false));
        let (transport, client) = client_of_server(move |request| -> Reply {
            let is_read = request.starts_with("GET ");
            if is_read && request.ends_with("/bindings") {
                let mark = |cluster: &str| {
                    json!({
                        "source": "asya", "destination": "asya-q", "destination_type": "queue", "routing_key": "asya-q",
                        "properties_key": cluster,
                        "arguments": {"asya.sh/cluster": cluster, "asya.sh/namespace": "ns", "asya.sh/actor": "q"},
                    })
                };
                let marks = [mark(HERE), mark(other)];
                let marks: &[Value] = if marked.load(SeqCst) { &marks } else { &[] };
                return (200, json!(marks));
            }
            if request.starts_with("POST ") {
                marked.store(true, SeqCst);
            }
            (201, Value::Null)
        })
        .await;
        let result = client.create(&queue_of(&transport, "q")).await;
        check(result, is_taken.then_some(other));
    }
}

/// A client of an SQS that creates every queue, and answers this to a read of its tags.
async fn sqs_with(tags: (u16, Value)) -> (Transport, Arc<dyn QueueClient>) {
    let answer = move |headers: HeaderMap| {
        let (status, body) = match headers["x-amz-target"].to_str().unwrap() {
            "AmazonSQS.CreateQueue" => (200, json!({"QueueUrl": "http://sqs/1/asya-q"})),
            "AmazonSQS.ListQueueTags" => tags.clone(),
            other => panic!("{other}"),
        };
        let reply = (StatusCode::from_u16(status).unwrap(), body.to_string());
        std::future::ready(reply)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().route("/", post(answer));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    let transport = transport("sqs", &json!({"endpoint": endpoint, "region": "us-east-1"}));
    let client = client(&transport).await.unwrap();
    (transport, client)
}

/// QUE-32: SQS ignores the tags of the second to create a queue, and does not report that.
#[tokio::test]
async fn sqs_queue_that_another_cluster_has_created_at_the_same_moment_is_not_ready() {
    let of = |cluster: &str, actor: &str| {
        let tags =
            json!({"asya.sh/cluster": cluster, "asya.sh/namespace": "ns", "asya.sh/actor": actor});
        (200, json!({"Tags": tags}))
    };
    let absent = json!({"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no"});
    for (tags, taken_by) in [
        (of(HERE, "q"), None),
        (of("cluster-a", "q"), Some("cluster-a")),
        (of("cluster-c", "q"), Some("cluster-c")),
        (of(HERE, "other"), Some("ns/other")),
        ((400, absent), None),
        ((200, json!({})), None),
    ] {
        let (transport, client) = sqs_with(tags).await;
        let result = client.create(&queue_of(&transport, "q")).await;
        check(result, taken_by);
    }
}
