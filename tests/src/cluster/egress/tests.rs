use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Backend, listen, set_route};
use crate::process::Folder;

/// A process behind a Service: it sends its name on every connection, and serves readiness on another port.
async fn backend(name: &'static str, ready: StatusCode) -> Backend {
    let main = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let health = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = Backend {
        address: main.local_addr().unwrap().to_string(),
        ready: Some(format!("http://{}/readyz", health.local_addr().unwrap())),
    };
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = main.accept().await {
            stream.write_all(name.as_bytes()).await.unwrap();
        }
    });
    let router = Router::new().route("/readyz", get(move || async move { ready }));
    tokio::spawn(async move { axum::serve(health, router).await });
    backend
}

async fn connect(folder: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(folder.join("egress.sock"))
        .await
        .unwrap();
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn service_routes_to_the_ready_backend() {
    let folder = Folder::create("egress").unwrap();
    let (_client, client) = watch::channel(None);
    let _egress = listen(&folder, client, false).unwrap();
    let backends = [
        backend("not ready", StatusCode::SERVICE_UNAVAILABLE).await,
        backend("ready", StatusCode::OK).await,
    ];
    set_route(&folder, "system", "webhook", 443, &backends).unwrap();
    for _ in 0..4 {
        let answer = connect(&folder, "webhook.system.svc:443").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nready"), "{answer}");
    }
}

#[tokio::test]
async fn service_without_ready_backend_is_unavailable() {
    let folder = Folder::create("egress").unwrap();
    let (_client, client) = watch::channel(None);
    let _egress = listen(&folder, client, false).unwrap();
    let backends = [backend("not ready", StatusCode::SERVICE_UNAVAILABLE).await];
    set_route(&folder, "system", "webhook", 443, &backends).unwrap();
    for target in [
        "webhook.system.svc:443",
        "webhook.system.svc:444",
        "other.system.svc:443",
    ] {
        let answer = connect(&folder, target).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{target}: {answer}");
    }
    let log = std::fs::read_to_string(folder.join("egress.log")).unwrap();
    assert!(
        log.contains("no process behind webhook.system.svc:443 is ready"),
        "{log}"
    );
    assert!(
        log.contains("nothing is routed to other.system.svc:443"),
        "{log}"
    );
}

#[tokio::test]
async fn hanging_probe_of_a_backend_does_not_prevent_connections_to_another() {
    let folder = Folder::create("egress").unwrap();
    let (_client, client) = watch::channel(None);
    let _egress = listen(&folder, client, false).unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = Backend {
        address: "127.0.0.1:1".to_owned(),
        ready: Some(format!("http://{}/readyz", silent.local_addr().unwrap())),
    };
    let backends = [hanging, backend("ready", StatusCode::OK).await];
    set_route(&folder, "system", "webhook", 443, &backends).unwrap();
    // The first connection detects it.
    for limit in [10, 3, 3] {
        let answer = connect(&folder, "webhook.system.svc:443");
        let answer = timeout(Duration::from_secs(limit), answer).await.unwrap();
        assert!(answer.ends_with("\r\n\r\nready"), "{answer}");
    }
    let log = std::fs::read_to_string(folder.join("egress.log")).unwrap();
    assert!(log.contains("probe of http://"), "{log}");
}
