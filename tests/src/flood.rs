//! Clients that flood the webhook's port (ADM-22). They all connect from their own address, as other pods would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::operator::{Instance, NAMESPACE};

/// On Linux all of 127.0.0.0/8 is loopback.
const FROM: &str = "127.0.0.2:0";
const NAME: &str = "asya-operator-webhook.asya-system.svc";
/// Holds the CA certificate of the webhook.
const SECRET: &str = "asya-operator-webhook-tls";
/// The port on which the chart's pods listen for reviews.
const PORT: u16 = 9443;
const PATH: &str = "/mutate/pods";
/// Streams per connection: the server's limit.
const STREAMS: u32 = 32;
const LARGE: usize = 8 << 20;
const AGAIN: Duration = Duration::from_millis(50);
/// The clients share processors with the webhook and the API server, which they would not do in a cluster, so they run
/// at the lowest priority.
const NICE: i32 = 19;

/// Where the clients connect, what they trust, and their threads. Dropping it stops them all.
pub struct Clients {
    target: Target,
    runtime: Option<Runtime>,
}

impl Drop for Clients {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Clients {
    /// Prepares clients that will connect to this replica of the webhook; none connects yet.
    ///
    /// # Errors
    /// When the replica listens nowhere, or the controller has issued no certificate.
    pub async fn of(cluster: &Cluster, replica: &Instance) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), NAMESPACE);
        let data = secrets.get(SECRET).await?.data.unwrap_or_default();
        let ca = data.get("ca.crt");
        let ca = ca.ok_or_else(|| Error::other(format!("Secret {SECRET} has no ca.crt")))?;
        let ca = CertificateDer::from_pem_slice(&ca.0).map_err(Error::other)?;
        let address = replica.address_of(PORT);
        let address = address.ok_or_else(|| Error::other("nobody listens for reviews"))?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let lower = || {
            // On Linux this applies to the calling thread only.
            let _ = rustix::process::nice(NICE);
        };
        let runtime = builder.enable_all().on_thread_start(lower).build();
        Ok(Self {
            target: Target::new(address, ca)?,
            runtime: Some(runtime.map_err(Error::other)?),
        })
    }

    fn spawn(&self, client: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(client);
        }
    }

    /// Opens this many connections, some at a time, and keeps each until the server closes it. Returns how many were
    /// opened.
    pub async fn idle(&self, count: usize) -> usize {
        let (target, (opened, answer)) = (self.target.clone(), oneshot::channel());
        self.spawn(async move {
            let mut open = 0;
            for _ in 0..count.div_ceil(50) {
                let batch = (0..50).map(|_| target.connect(false));
                for mut stream in futures::future::join_all(batch).await.into_iter().flatten() {
                    open += 1;
                    tokio::spawn(async move {
                        let _ = stream.read(&mut [0]).await;
                    });
                }
            }
            let _ = opened.send(open);
        });
        answer.await.unwrap_or_default()
    }

    /// Keeps this many HTTP/2 streams open, each sending a byte of its body now and then.
    pub fn slow_streams(&self, count: u32) {
        for _ in 0..count.div_ceil(STREAMS) {
            let target = self.target.clone();
            self.spawn(async move {
                loop {
                    let _ = target.slow_connection().await;
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
    }

    /// Sends this many bodies of 8 MiB concurrently, again and again.
    pub fn large_bodies(&self, count: usize) {
        let body: Arc<[u8]> = vec![b' '; LARGE].into();
        for _ in 0..count {
            let (target, body) = (self.target.clone(), Arc::clone(&body));
            self.spawn(async move {
                loop {
                    let _ = target.large_body(&body).await;
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
    }
}

#[derive(Clone)]
struct Target {
    address: SocketAddr,
    tls: [TlsConnector; 2],
}

impl Target {
    fn new(address: &str, ca: CertificateDer<'static>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(ca).map_err(Error::other)?;
        let tls = ["http/1.1", "h2"].map(|protocol| {
            let mut config = ClientConfig::builder()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            TlsConnector::from(Arc::new(config))
        });
        let address = address.parse().map_err(Error::other)?;
        Ok(Self { address, tls })
    }

    async fn connect(&self, http2: bool) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(FROM.parse().map_err(std::io::Error::other)?)?;
        let stream = socket.connect(self.address).await?;
        let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
        self.tls[usize::from(http2)].connect(name, stream).await
    }

    async fn slow_connection(&self) -> std::io::Result<()> {
        let mut stream = self.connect(true).await?;
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await?;
        stream.write_all(&frame(4, 0, 0, &[])).await?;
        for number in 0..STREAMS {
            stream
                .write_all(&frame(1, 4, 2 * number + 1, &head()))
                .await?;
        }
        let (from, to) = tokio::io::split(stream);
        // By now every stream has been answered; reconnect.
        let over = tokio::time::sleep(Duration::from_secs(3));
        tokio::select! {
            done = trickle(to) => done,
            done = read_all(from) => done,
            () = over => Ok(()),
        }
    }

    async fn large_body(&self, body: &[u8]) -> std::io::Result<()> {
        let mut stream = self.connect(false).await?;
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.read(&mut [0; 1024]).await.map(drop)
    }
}

/// Sends a byte of each stream's body now and then.
async fn trickle(mut to: WriteHalf<TlsStream<TcpStream>>) -> std::io::Result<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        for number in 0..STREAMS {
            to.write_all(&frame(0, 0, 2 * number + 1, b" ")).await?;
        }
    }
}

/// Reads and discards responses and pings without ever acknowledging them.
async fn read_all(mut from: ReadHalf<TlsStream<TcpStream>>) -> std::io::Result<()> {
    while from.read(&mut [0; 1024]).await? > 0 {}
    Ok(())
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or_default()
        .to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// HPACK headers of a review request: `POST` and `https` as indexed fields, the rest as literals.
fn head() -> Vec<u8> {
    let mut head = vec![0x83, 0x87];
    for (index, text) in [
        (&[0x04][..], PATH),
        (&[0x01], NAME),
        (&[0x0f, 0x10], "application/json"),
    ] {
        head.extend_from_slice(index);
        head.push(u8::try_from(text.len()).unwrap_or_default());
        head.extend_from_slice(text.as_bytes());
    }
    head
}
