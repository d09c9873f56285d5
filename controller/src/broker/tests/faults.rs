//! Broker failures that no real broker can be made to show: a small server that always gives the same response.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::fault::Requeue;

/// Stops when dropped.
struct Server {
    address: String,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answering(status: u16, kind: &'static str, body: &'static str) -> Server {
    answering_with(status, [("content-type", kind)], body).await
}

async fn answering_with<const N: usize>(
    status: u16,
    headers: [(&'static str, &'static str); N],
    body: &'static str,
) -> Server {
    let status = StatusCode::from_u16(status).unwrap();
    let answer = move || std::future::ready((status, headers, body).into_response());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let routes = Router::new().fallback(answer);
    let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    Server { address, task }
}

/// Accepts connections and never responds.
async fn silent() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    Server { address, task }
}

fn config(kind: &str, address: &str) -> Value {
    let (host, port) = address.rsplit_once(':').unwrap();
    match kind {
        "sqs" => json!({"endpoint": format!("http://{address}"), "region": "us-east-1"}),
        _ => json!({"host": host, "management": {"port": port.parse::<u16>().unwrap()}}),
    }
}

async fn refusal(kind: &str, address: &str) -> BrokerError {
    let transport = transport(kind, &config(kind, address));
    let client = client(&transport).await.unwrap();
    let queue = queue_of(&transport, "q");
    let observed = client.observe(&queue).await.unwrap_err();
    assert_eq!(
        client.observe(&queue).await,
        Err(observed.clone()),
        "the same is said of the same"
    );
    let surveyed = client.survey(std::slice::from_ref(&queue)).await;
    assert_eq!(surveyed, [Err(observed.clone())]);
    observed
}

fn name(error: &BrokerError) -> &'static str {
    match error {
        BrokerError::AuthFailed(_) => "AuthFailed",
        BrokerError::Unreachable(_) => "Unreachable",
        BrokerError::Throttled(_) => "Throttled",
        BrokerError::Resting(..) => "Resting",
        BrokerError::ConfigInvalid(_) => "ConfigInvalid",
        BrokerError::NotThereYet(_) => "NotThereYet",
        BrokerError::DeletedRecently(_) => "DeletedRecently",
        BrokerError::Mismatch(_) => "Mismatch",
        _ => "other",
    }
}

/// SQS-8, QUE-11
#[tokio::test]
async fn sqs_responses_map_to_errors() {
    const JSON: &str = "application/x-amz-json-1.0";
    let rows = [
        (
            403,
            JSON,
            r#"{"__type":"AccessDeniedException","message":"session 17 at 12:00"}"#,
            "AuthFailed",
        ),
        (
            403,
            JSON,
            r#"{"__type":"com.amazonaws.sqs#RequestThrottled","message":"x"}"#,
            "Throttled",
        ),
        (
            400,
            JSON,
            r#"{"__type":"ThrottlingException","message":"x"}"#,
            "Throttled",
        ),
        (
            400,
            JSON,
            r#"{"__type":"InvalidClientTokenId","message":"x"}"#,
            "AuthFailed",
        ),
        (
            400,
            JSON,
            r#"{"__type":"com.amazonaws.sqs#QueueDeletedRecently","message":"x"}"#,
            "DeletedRecently",
        ),
        (
            400,
            JSON,
            r#"{"__type":"InvalidAttributeValue","message":"Invalid value"}"#,
            "NotThereYet",
        ),
        (500, JSON, r#"{"__type":"InternalFailure"}"#, "Throttled"),
        (503, "text/html", "<html>down</html>", "Throttled"),
        (403, "text/html", "<html>no</html>", "AuthFailed"),
        (404, "text/html", "<html>what?</html>", "Throttled"),
        (200, "text/html", "<html>hello</html>", "Throttled"),
        (
            400,
            JSON,
            r#"{"__type":"SomethingNew","message":"x"}"#,
            "Throttled",
        ),
    ];
    for (status, kind, body, wanted) in rows {
        let server = answering(status, kind, body).await;
        let error = refusal("sqs", &server.address).await;
        assert_eq!(name(&error), wanted, "{status} {body}: {error}");
        let text = error.to_string();
        assert!(
            !text.contains("12:00"),
            "what changes with each answer is not told: {text}"
        );
    }
}

/// RMQ-2, RMQ-3, QUE-10, QUE-11, FW-28
#[tokio::test]
async fn rabbitmq_responses_map_to_errors() {
    let rows = [
        (401, r#"{"error":"not_authorised"}"#, "AuthFailed"),
        (403, "", "AuthFailed"),
        (429, "", "Throttled"),
        (500, "<html>", "Throttled"),
        (503, "", "Throttled"),
        (200, "<html>hello</html>", "Throttled"),
        (302, "", "Throttled"),
        (404, "default backend - 404", "Throttled"),
        (404, r#"{"message":"no Route matched"}"#, "Throttled"),
        (404, r#"{"error":"Not Found","status":404}"#, "Throttled"),
        (404, "", "Throttled"),
        (
            400,
            r#"{"error":"bad_request","reason":"inequivalent arg 'durable'"}"#,
            "Mismatch",
        ),
        (400, r#"{"reason":"bad"}"#, "NotThereYet"),
        (
            400,
            r#"{"error":"bad_request","reason":"nodedown"}"#,
            "NotThereYet",
        ),
        (400, "", "NotThereYet"),
    ];
    for (status, body, wanted) in rows {
        let server = answering(status, "application/json", body).await;
        let error = refusal("rabbitmq", &server.address).await;
        assert_eq!(name(&error), wanted, "{status} {body}: {error}");
        let retry = error.retry();
        assert_ne!(
            retry,
            Requeue::AwaitChange,
            "no event follows: {status} {body}"
        );
    }
}

/// FIN-3, RMQ-6: deleting a queue that does not exist succeeds.
#[tokio::test]
async fn only_rabbitmqs_own_404_means_that_a_queue_is_absent() {
    let own = r#"{"error":"Object Not Found","reason":"Not Found"}"#;
    for (body, gone) in [(own, true), ("<html>404</html>", false), ("", false)] {
        let server = answering(404, "application/json", body).await;
        let transport = transport("rabbitmq", &config("rabbitmq", &server.address));
        let client = client(&transport).await.unwrap();
        let queue = queue_of(&transport, "q");
        let (name, owner) = (&*queue.names.queue, owner(&queue));
        let deleted = client.delete(name, &owner).await;
        assert_eq!(deleted.is_ok(), gone, "{body:?}: {deleted:?}");
        let emptied = client.delete_if_empty(name, &owner).await;
        assert_eq!(emptied.is_ok(), gone, "{body:?}: {emptied:?}");
        let seen = client.observe(&queue).await;
        assert_eq!(seen.is_ok(), gone, "{body:?}: {seen:?}");
    }
}

/// FW-28
#[tokio::test]
async fn retry_after_becomes_the_requeue_delay() {
    let json = ("content-type", "application/x-amz-json-1.0");
    let wait = ("retry-after", "7");
    for (kind, status, body) in [
        ("rabbitmq", 429, ""),
        ("rabbitmq", 503, ""),
        ("sqs", 503, ""),
        ("sqs", 400, r#"{"__type":"ThrottlingException"}"#),
    ] {
        let server = answering_with(status, [json, wait], body).await;
        let error = refusal(kind, &server.address).await;
        assert_eq!(name(&error), "Resting", "{kind} {status}: {error}");
        assert_eq!(error.retry(), Requeue::After(Duration::from_secs(7)));
    }
}

/// QUE-9
#[tokio::test]
async fn a_broker_that_refuses_connections_is_unreachable() {
    for kind in ["sqs", "rabbitmq"] {
        let address = {
            let server = silent().await;
            server.task.abort();
            while !server.task.is_finished() {
                tokio::task::yield_now().await;
            }
            server.address.clone()
        };
        let error = refusal(kind, &address).await;
        assert_eq!(name(&error), "Unreachable", "{kind}: {error}");
        assert!(error.to_string().contains(&address), "{error}");
    }
}

/// QUE-8, QUE-9
#[tokio::test]
async fn a_call_to_a_broker_that_hangs_ends_after_ten_seconds() {
    let hang = async |kind: &str| {
        let server = silent().await;
        let transport = transport(kind, &config(kind, &server.address));
        let client = client(&transport).await.unwrap();
        let began = Instant::now();
        let error = client
            .observe(&queue_of(&transport, "q"))
            .await
            .unwrap_err();
        let took = began.elapsed();
        assert_eq!(name(&error), "Unreachable", "{kind}: {error}");
        assert!(
            error.to_string().ends_with("did not respond in time"),
            "{error}"
        );
        assert!(
            took > Duration::from_secs(9) && took < Duration::from_secs(12),
            "{kind}: {took:?}"
        );
    };
    tokio::join!(hang("sqs"), hang("rabbitmq"));
}
