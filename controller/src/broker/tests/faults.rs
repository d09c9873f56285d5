//! Broker failures that a real broker cannot be forced to show: a small server that always returns the same response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::fault::Requeue;

/// A connection that loopback has not accepted by then finds the queue full.
const FULL: Duration = Duration::from_millis(100);
/// For a request over loopback, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Stops when dropped.
struct Server {
    address: String,
    /// How many it has received.
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn responding(status: u16, kind: &'static str, body: &'static str) -> Server {
    responding_with(status, [("content-type", kind)], body).await
}

async fn responding_with<const N: usize>(
    status: u16,
    headers: [(&'static str, &'static str); N],
    body: &'static str,
) -> Server {
    let status = StatusCode::from_u16(status).unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let respond = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready((status, headers, body).into_response())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let routes = Router::new().fallback(respond);
    let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    Server {
        address,
        requests,
        task,
    }
}

/// Accepts a connection and never responds. While the task waits for the request, paused time stands still.
async fn silent() -> (Server, JoinHandle<Result<(), RecvTimeoutError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (requests, requested) = mpsc::channel();
    let task = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read_u8().await.unwrap();
        requests.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    let waiting = tokio::task::spawn_blocking(move || requested.recv_timeout(PATIENCE));
    let requests = Arc::default();
    let server = Server {
        address,
        requests,
        task,
    };
    (server, waiting)
}

fn config(kind: &str, address: &str) -> Value {
    let (host, port) = address.rsplit_once(':').unwrap();
    match kind {
        "sqs" => json!({"endpoint": format!("http://{address}"), "region": "us-east-1"}),
        _ => json!({"host": host, "management": {"port": port.parse::<u16>().unwrap()}}),
    }
}

async fn observe_error(kind: &str, address: &str) -> BrokerError {
    let transport = transport(kind, &config(kind, address));
    let client = client(&transport).await.unwrap();
    let queue = queue_of(&transport, "q");
    let error = client.observe(&queue).await.unwrap_err();
    let again = client.observe(&queue).await.unwrap_err();
    assert_eq!(
        last_call(again),
        error,
        "the same failure has the same message"
    );
    let mut many = client.observe_many(std::slice::from_ref(&queue)).await;
    assert_eq!(last_call(many.remove(0).unwrap_err()), error);
    error
}

/// The error of the last call, also if none was made this time.
fn last_call(error: BrokerError) -> BrokerError {
    match error {
        BrokerError::CircuitOpen(last, _) => *last,
        error => error,
    }
}

fn name(error: &BrokerError) -> &'static str {
    match error {
        BrokerError::AuthFailed(_) => "AuthFailed",
        BrokerError::Unreachable(_) => "Unreachable",
        BrokerError::Throttled(_) => "Throttled",
        BrokerError::RetryAfter(..) => "RetryAfter",
        BrokerError::ConfigInvalid(_) => "ConfigInvalid",
        BrokerError::PrerequisiteMissing(_) => "PrerequisiteMissing",
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
            "PrerequisiteMissing",
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
    for (status, kind, body, expected) in rows {
        let server = responding(status, kind, body).await;
        let error = observe_error("sqs", &server.address).await;
        assert_eq!(name(&error), expected, "{status} {body}: {error}");
        let text = error.to_string();
        assert!(
            !text.contains("12:00"),
            "details that change with each response are not reported: {text}"
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
        (400, r#"{"reason":"bad"}"#, "PrerequisiteMissing"),
        (
            400,
            r#"{"error":"bad_request","reason":"nodedown"}"#,
            "PrerequisiteMissing",
        ),
        (400, "", "PrerequisiteMissing"),
    ];
    for (status, body, expected) in rows {
        let server = responding(status, "application/json", body).await;
        let error = observe_error("rabbitmq", &server.address).await;
        assert_eq!(name(&error), expected, "{status} {body}: {error}");
        let requeue = error.requeue();
        assert_ne!(
            requeue,
            Requeue::AwaitChange,
            "no event triggers a retry: {status} {body}"
        );
    }
}

/// RMQ-2: the password goes to no other server.
#[tokio::test]
async fn redirects_are_not_followed() {
    let other = responding(401, "application/json", r#"{"error":"not_authorised"}"#).await;
    let location: &'static str = format!("http://{}/api/vhosts", other.address).leak();
    let server = responding_with(302, [("location", location)], "").await;
    let error = observe_error("rabbitmq", &server.address).await;
    assert_eq!(name(&error), "Throttled", "{error}");
}

/// QUE-8 (e), QUE-9: the kernel drops a connection while the queue of those to accept is full.
#[tokio::test(start_paused = true)]
async fn connection_attempts_to_a_full_broker_time_out_after_three_seconds() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(connection) = std::net::TcpStream::connect_timeout(&address, FULL) {
        waiting.push(connection);
    }
    let transport = transport("rabbitmq", &config("rabbitmq", &address.to_string()));
    let client = client(&transport).await.unwrap();
    let started = Instant::now();
    let error = client
        .observe(&queue_of(&transport, "q"))
        .await
        .unwrap_err();
    assert_eq!(name(&error), "Unreachable", "{error}");
    assert_eq!(started.elapsed().as_secs(), 3);
}

/// FIN-3, RMQ-6: deleting a queue that does not exist succeeds.
#[tokio::test]
async fn only_rabbitmqs_own_404_means_that_a_queue_is_absent() {
    let own = r#"{"error":"Object Not Found","reason":"Not Found"}"#;
    for (body, is_absent) in [(own, true), ("<html>404</html>", false), ("", false)] {
        let server = responding(404, "application/json", body).await;
        let transport = transport("rabbitmq", &config("rabbitmq", &server.address));
        let client = client(&transport).await.unwrap();
        let queue = queue_of(&transport, "q");
        let (name, owner) = (&*queue.names.queue, owner(&queue));
        let deleted = client.delete(name, &owner, &Confirmed).await;
        assert_eq!(deleted.is_ok(), is_absent, "{body:?}: {deleted:?}");
        let emptied = client
            .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
            .await;
        assert_eq!(emptied.is_ok(), is_absent, "{body:?}: {emptied:?}");
        let observed = client.observe(&queue).await;
        assert_eq!(observed.is_ok(), is_absent, "{body:?}: {observed:?}");
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
        let server = responding_with(status, [json, wait], body).await;
        let error = observe_error(kind, &server.address).await;
        assert_eq!(name(&error), "RetryAfter", "{kind} {status}: {error}");
        assert_eq!(error.requeue(), Requeue::After(Duration::from_secs(7)));
        let requests = server.requests.load(Ordering::SeqCst);
        assert_eq!(requests, 1, "{kind} {status}: none until then");
    }
}

/// QUE-9
#[tokio::test]
async fn broker_that_refuses_connections_is_unreachable() {
    for kind in ["sqs", "rabbitmq"] {
        // Bound, so that no other server gets its port.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let error = observe_error(kind, &address).await;
        assert_eq!(name(&error), "Unreachable", "{kind}: {error}");
        assert!(error.to_string().contains(&address), "{error}");
    }
}

/// QUE-8 (e), QUE-9
#[tokio::test(start_paused = true)]
async fn call_to_a_hanging_broker_times_out_after_ten_seconds() {
    for kind in ["sqs", "rabbitmq"] {
        let (server, requested) = silent().await;
        let transport = transport(kind, &config(kind, &server.address));
        let client = client(&transport).await.unwrap();
        let started = Instant::now();
        let error = client
            .observe(&queue_of(&transport, "q"))
            .await
            .unwrap_err();
        let elapsed = started.elapsed();
        requested.await.unwrap().expect("a request");
        assert_eq!(name(&error), "Unreachable", "{kind}: {error}");
        assert!(
            error.to_string().ends_with("did not respond in time"),
            "{error}"
        );
        assert_eq!(elapsed.as_secs(), 10, "{kind}: {elapsed:?}");
    }
}
