use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

async fn start() -> (std::net::SocketAddr, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let routes = Router::new().route("/", get(async || "ok"));
    tokio::spawn(plain(listener, routes, stop.clone()));
    (address, stop)
}

async fn send_request(stream: &mut TcpStream) -> String {
    let request = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = [0; 1024];
    let read = stream.read(&mut response).await.unwrap();
    String::from_utf8_lossy(&response[..read]).into_owned()
}

/// ADM-20, ADM-21
#[tokio::test]
async fn silent_clients_do_not_block_the_kubelet() {
    let (address, _stop) = start().await;
    let mut kept = TcpStream::connect(address).await.unwrap();
    assert!(send_request(&mut kept).await.starts_with("HTTP/1.1 200"));
    let mut silent = Vec::new();
    for _ in 0..3 * MAX_PLAIN_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // The oldest were evicted.
    let ends = silent[..MAX_PLAIN_CONNECTIONS]
        .iter_mut()
        .map(async |it| it.read(&mut [0]).await);
    for end in ends {
        assert!(matches!(end.await, Ok(0) | Err(_)));
    }
    let mut probe = TcpStream::connect(address).await.unwrap();
    assert!(send_request(&mut probe).await.starts_with("HTTP/1.1 200"));
}

/// ADM-21
#[tokio::test(start_paused = true)]
async fn silent_clients_and_incomplete_requests_time_out() {
    let (address, _stop) = start().await;
    let started = Instant::now();
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!((10..=11).contains(&started.elapsed().as_secs()));

    let mut half = TcpStream::connect(address).await.unwrap();
    assert!(send_request(&mut half).await.starts_with("HTTP/1.1 200"));
    let started = Instant::now();
    half.write_all(b"GET / HT").await.unwrap();
    assert_eq!(half.read(&mut [0]).await.unwrap(), 0);
    assert!((5..=6).contains(&started.elapsed().as_secs()));
}

/// ADM-21
#[tokio::test]
async fn request_head_size_is_limited() {
    let (address, _stop) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET / HTTP/1.1\r\nhost: test\r\nx: {}",
        "x".repeat(2 * MAX_BUFFER_BYTES)
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let mut response = [0; 64];
    let read = stream.read(&mut response).await.unwrap_or_default();
    let response = String::from_utf8_lossy(&response[..read]);
    assert!(
        read == 0 || response.starts_with("HTTP/1.1 431"),
        "{response}"
    );
}

/// OPS-6
#[tokio::test]
async fn server_responds_until_it_is_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let routes = Router::new().route("/", get(async || "ok"));
    let server = tokio::spawn(plain(listener, routes, stop.clone()));
    let mut kept = TcpStream::connect(address).await.unwrap();
    assert!(send_request(&mut kept).await.starts_with("HTTP/1.1 200"));
    stop.cancel(); // with the connection still open, like a probe's keep-alive
    timeout(Duration::from_secs(5), server)
        .await
        .unwrap()
        .unwrap();
}
