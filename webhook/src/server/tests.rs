use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asya_certs::data::{CA_BUNDLE, Data, LEAF, LEAF_KEY};
use asya_certs::issuer::{Ca, Settings};
use asya_certs::serve::Certificates;
use asya_process::serve::Connections;
use axum::Router;
use axum::routing::get;
use http::header::CONNECTION;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::jiff::Timestamp;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{MAX_CONNECTIONS, Shutdown, serve};

const HOST: &str = "asya-webhook.asya-system.svc";

/// A running server with its own certificate.
struct Running {
    address: SocketAddr,
    roots: RootCertStore,
    connections: Connections,
    end: Shutdown,
    ended: JoinHandle<()>,
    /// Notified when a request to `/slow` arrives.
    arrived: Arc<Notify>,
    /// Lets the request complete.
    release: Arc<Notify>,
}

impl Running {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (settings, now) = (
            Settings::with_defaults(vec![HOST.to_owned()]),
            Timestamp::now(),
        );
        let ca = Ca::new(&settings, now).unwrap();
        let leaf = ca.issue(&settings, now).unwrap();
        let mut data = Data::default();
        data.set(LEAF, &leaf.certificate.pem());
        data.set(LEAF_KEY, &leaf.key);
        data.set(CA_BUNDLE, &ca.certificate.pem());
        let certificates = Certificates::new(vec![HOST.to_owned()]);
        certificates.update_secret(Some(data), now);
        let tls = asya_certs::serve::tls(certificates, None).unwrap();
        let tls = TlsAcceptor::from(Arc::new(tls));
        let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (on_arrival, on_release) = (Arc::clone(&arrived), Arc::clone(&release));
        let slow = async move || {
            on_arrival.notify_one();
            on_release.notified().await;
            "slow"
        };
        let routes = Router::new()
            .route("/", get(async || "quick"))
            .route("/slow", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let end = Shutdown::default();
        let connections = Connections::new(MAX_CONNECTIONS);
        let ended = tokio::spawn(serve(
            listener,
            tls,
            routes,
            connections.clone(),
            end.clone(),
            Duration::from_secs(5),
        ));
        let mut roots = RootCertStore::empty();
        roots.add(ca.certificate.der().clone()).unwrap();
        Self {
            address,
            roots,
            connections,
            end,
            ended,
            arrived,
            release,
        }
    }

    async fn connect(
        &self,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_from("127.0.0.1:0", protocols, versions).await
    }

    async fn connect_from(
        &self,
        from: &str,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::builder_with_protocol_versions(versions)
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        let socket = TcpSocket::new_v4()?;
        socket.bind(from.parse().unwrap())?;
        let stream = socket.connect(self.address).await?;
        let name = ServerName::try_from(HOST).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    async fn http1(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> http1::SendRequest<Empty<Bytes>> {
        let stream = self.connect(&["http/1.1"], versions).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn http2(&self) -> http2::SendRequest<Empty<Bytes>> {
        let stream = self.connect(&["h2"], rustls::ALL_VERSIONS).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://{HOST}{path}"))
        .body(Empty::new())
        .unwrap()
}

/// CERT-8
#[tokio::test]
async fn both_versions_of_tls_and_http_are_served() {
    let server = Running::start().await;
    for version in rustls::ALL_VERSIONS {
        let mut sender = server.http1(&[*version]).await;
        let response = sender.send_request(request("/")).await.unwrap();
        assert_eq!(
            (response.status(), response.version()),
            (StatusCode::OK, Version::HTTP_11)
        );
    }
    let response = server
        .http2()
        .await
        .send_request(request("/"))
        .await
        .unwrap();
    assert_eq!(
        (response.status(), response.version()),
        (StatusCode::OK, Version::HTTP_2)
    );
}

/// CERT-8
#[tokio::test(start_paused = true)]
async fn tls_handshake_times_out_after_5_s() {
    let server = Running::start().await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(started.elapsed().as_secs(), 5);
}

/// AVL-3
#[tokio::test]
async fn shutdown_completes_in_flight_requests_and_accepts_no_new_ones() {
    let server = Running::start().await;
    let (mut idle, mut busy) = (server.http2().await, server.http2().await);
    assert_eq!(
        idle.send_request(request("/")).await.unwrap().status(),
        StatusCode::OK
    );
    let slow = tokio::spawn(busy.send_request(request("/slow")));
    server.arrived.notified().await;

    server.end.stop.cancel();
    // GOAWAY: the client stops using this connection, and opens another one elsewhere.
    while !idle.is_closed() {
        tokio::task::yield_now().await;
    }
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.ended.is_finished());
    server.release.notify_one();
    let response = slow.await.unwrap().unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "slow"
    );
    server.ended.await.unwrap();
}

/// AVL-3
#[tokio::test]
async fn kept_connections_are_closed_with_their_last_response() {
    let server = Running::start().await;
    let mut kept = server.http1(rustls::ALL_VERSIONS).await;
    let mut streams = server.http2().await;
    for is_draining in [false, true] {
        let response = kept.send_request(request("/")).await.unwrap();
        let last = response.headers().get(CONNECTION);
        assert_eq!(last.is_some_and(|value| value == "close"), is_draining);
        response.into_body().collect().await.unwrap();
        // Not over HTTP/2, which has no such header.
        let response = streams.send_request(request("/")).await.unwrap();
        assert_eq!(response.headers().get(CONNECTION), None);
        server.end.draining.cancel();
    }
    while !kept.is_closed() {
        tokio::task::yield_now().await;
    }
    // Clients that still connect are served as well.
    let mut late = server.http1(rustls::ALL_VERSIONS).await;
    let response = late.send_request(request("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

/// AVL-3
#[tokio::test(start_paused = true)]
async fn requests_still_running_after_5_s_are_cut_off() {
    let server = Running::start().await;
    let mut busy = server.http2().await;
    let slow = tokio::spawn(busy.send_request(request("/slow")));
    server.arrived.notified().await;
    let started = tokio::time::Instant::now();
    server.end.stop.cancel();
    server.ended.await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 5);
    slow.abort();
}

/// ADM-20
#[tokio::test]
async fn silent_connections_beyond_the_limit_evict_only_their_own_client() {
    const MORE: usize = 200;
    let server = Running::start().await;
    let mut kept = server.http1(rustls::ALL_VERSIONS).await;
    let response = kept.send_request(request("/")).await.unwrap();
    response.into_body().collect().await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS + MORE {
        let protocol = ["http/1.1"];
        let stream = server.connect_from("127.0.0.2:0", &protocol, rustls::ALL_VERSIONS);
        silent.push(stream.await.unwrap());
    }
    let count = server.connections.count();
    assert!(count.open <= MAX_CONNECTIONS, "{count:?}");
    assert!(count.evicted >= MORE as u64, "{count:?}");
    let response = kept.send_request(request("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut late = server.http1(rustls::ALL_VERSIONS).await;
    let response = late.send_request(request("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(matches!(silent[0].read(&mut [0]).await, Ok(0) | Err(_)));
}
