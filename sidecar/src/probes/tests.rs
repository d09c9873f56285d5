use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Health, answer};
use crate::metrics::Metrics;

/// The status and body of the response to a request.
async fn ask(health: &Arc<Health>, request: &str) -> (u16, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let health = health.clone();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let _ = answer(
            stream,
            health,
            Metrics::new("asya_actor", "foo", "rabbitmq"),
        )
        .await;
    });
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    server.await.expect("served");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    (status.unwrap_or_default(), body.unwrap_or_default())
}

async fn get(health: &Arc<Health>, path: &str) -> (u16, String) {
    ask(health, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await
}

/// SC-15, SC-16
#[tokio::test]
async fn liveness_depends_on_the_event_loop_and_readiness_on_broker_and_runtime() {
    let health = Arc::new(Health::default());
    assert_eq!(get(&health, "/healthz").await, (200, "OK".to_owned()));
    assert_eq!(get(&health, "/health").await.0, 200);
    assert_eq!(
        get(&health, "/readyz").await,
        (503, "broker: waiting\nruntime: waiting\n".to_owned())
    );
    assert!(health.set_broker(true) && !health.set_broker(true));
    assert_eq!(
        get(&health, "/readyz").await,
        (503, "broker: ready\nruntime: waiting\n".to_owned())
    );
    health.set_runtime(true);
    assert_eq!(get(&health, "/readyz").await.0, 200);
    assert_eq!(get(&health, "/other").await.0, 404);
    assert!(
        get(&health, "/metrics")
            .await
            .1
            .contains("asya_actor_active_messages")
    );
}

/// SC-15
#[tokio::test(start_paused = true)]
async fn event_loop_stalled_for_ten_seconds_is_not_alive() {
    let health = Health::default();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(health.is_alive());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!health.is_alive());
    health.heartbeat();
    assert!(health.is_alive());
}

/// SC-18
#[tokio::test]
async fn large_heads_and_other_methods_are_rejected() {
    let health = Arc::new(Health::default());
    let large = format!(
        "GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n",
        "a".repeat(16 << 10)
    );
    assert_eq!(ask(&health, &large).await.0, 431);
    assert_eq!(
        ask(
            &health,
            "POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
        )
        .await
        .0,
        405
    );
}
