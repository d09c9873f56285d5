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

/// ADM-21: an API server may dial a connection, get another one meanwhile, and keep the first for a later review.
#[tokio::test(start_paused = true)]
async fn connection_that_was_never_used_serves_a_request_until_the_client_would_have_closed_it() {
    let (address, _stop) = start().await;
    let mut spare = TcpStream::connect(address).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert!(send_request(&mut spare).await.starts_with("HTTP/1.1 200"));

    let mut silent = TcpStream::connect(address).await.unwrap();
    let started = Instant::now();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!((119..=121).contains(&started.elapsed().as_secs()));
}

/// ADM-21
#[tokio::test(start_paused = true)]
async fn incomplete_requests_time_out() {
    let (address, _stop) = start().await;
    for is_first in [true, false] {
        let mut half = TcpStream::connect(address).await.unwrap();
        if !is_first {
            assert!(send_request(&mut half).await.starts_with("HTTP/1.1 200"));
        }
        half.write_all(b"GET / HT").await.unwrap();
        let started = Instant::now();
        assert_eq!(half.read(&mut [0]).await.unwrap(), 0);
        assert!((5..=6).contains(&started.elapsed().as_secs()));
    }
}

/// Treats every connection as HTTP/2.
struct Http2;

impl Transport for Http2 {
    type Stream = TcpStream;

    async fn accept(&self, stream: TcpStream) -> io::Result<Accepted<TcpStream>> {
        Ok(Accepted {
            stream,
            is_http2: true,
            is_authenticated: false,
        })
    }
}

/// ADM-21
#[tokio::test(start_paused = true)]
async fn http2_connection_without_a_request_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Connections::new(2 * HTTP2_WEIGHT);
    tokio::spawn(serve(
        listener,
        Http2,
        Router::new(),
        connections.clone(),
        CancellationToken::new(),
        Duration::ZERO,
    ));
    let mut silent = TcpStream::connect(address).await.unwrap();
    let started = Instant::now();
    silent.read_to_end(&mut Vec::new()).await.unwrap();
    assert!((5..=6).contains(&started.elapsed().as_secs()));
    assert_eq!(connections.count().overdue, 1);
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
