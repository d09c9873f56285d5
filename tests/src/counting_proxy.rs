//! A proxy in front of the API server or RabbitMQ's management API that counts
//! writes, strikes at the n-th one, holds one back for as long as a test asks, and
//! makes every answer late.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use http::{Method, StatusCode};
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::error::{Error, Result, Trying};

/// When, around a request, the proxy strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The server never sees the request, the client gets no answer.
    BeforeForwarding,
    /// The server has done it, the client gets no answer.
    BeforeAnswering,
    /// The server has done it, the client knows.
    AfterAnswering,
}

/// A mutating request that came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Its method.
    pub method: Method,
    /// Its path with the query, as it was sent.
    pub path: String,
    /// The server's answer; none when it was not forwarded or not answered.
    pub status: Option<StatusCode>,
}

type Hook = Box<dyn FnOnce() + Send>;

/// A write that the proxy keeps to itself when it comes.
pub struct Held {
    came: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the write has come. It goes on to the server once what is answered is dropped.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub async fn came(self) -> Result<impl Send> {
        self.came.await.map_err(Error::other)?;
        Ok(self.go)
    }
}

/// The other end of [`Held`].
struct Hold {
    path: String,
    came: oneshot::Sender<()>,
    go: oneshot::Receiver<()>,
}

#[derive(Default)]
struct Seen {
    writes: Vec<Write>,
    /// Paths with their queries, each once.
    reads: BTreeSet<String>,
    /// The number of the write to strike at, when, and what to do.
    strike: Option<(usize, Moment, Hook)>,
    hold: Option<Hold>,
    latencies: Vec<Duration>,
    /// Requests that were made late.
    late: usize,
}

struct Shared {
    upstream: String,
    client: Client,
    seen: Mutex<Seen>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a write to this path is to be held back.
    fn held(&self, path: &str) -> Option<Hold> {
        self.seen().hold.take_if(|hold| path.ends_with(&hold.path))
    }

    /// How much later the next request is to be answered.
    fn latency(&self) -> Duration {
        let mut seen = self.seen();
        let number = seen.late;
        let Some(latency) = seen.latencies.iter().cycle().nth(number).copied() else {
            return Duration::ZERO;
        };
        seen.late = (number + 1) % seen.latencies.len();
        latency
    }

    /// The hook, if it is armed for this write and moment.
    fn hook(&self, number: usize, moment: Moment) -> Option<Hook> {
        let mut seen = self.seen();
        let armed = seen
            .strike
            .as_ref()
            .is_some_and(|strike| (strike.0, strike.1) == (number, moment));
        if armed {
            seen.strike.take().map(|strike| strike.2)
        } else {
            None
        }
    }
}

/// The proxy; ends when dropped.
pub struct CountingProxy {
    port: u16,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for CountingProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl CountingProxy {
    /// In front of a cluster's API server. Leases are not counted.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn to_api_server(cluster: &Cluster) -> Result<Self> {
        Self::start(
            &cluster.state().api_server,
            Some(&cluster.folder().join("ca.crt")),
        )
        .await
    }

    /// In front of a cluster's RabbitMQ management API.
    ///
    /// # Errors
    /// When the cluster has no RabbitMQ, or the proxy cannot listen.
    pub async fn to_rabbitmq(cluster: &Cluster) -> Result<Self> {
        Self::start(&cluster.rabbitmq()?.management_url(), None).await
    }

    async fn start(upstream: &str, authority: Option<&Path>) -> Result<Self> {
        crate::install_crypto_provider();
        // No timeout: watches last.
        let mut client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        if let Some(path) = authority {
            let pem = std::fs::read(path).trying(format_args!("read {}", path.display()))?;
            client = client.tls_certs_only([reqwest::Certificate::from_pem(&pem)?]);
        }
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            client: client.build()?,
            seen: Mutex::default(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .trying("listen for a proxy")?;
        let port = listener.local_addr().trying("listen for a proxy")?.port();
        let router = axum::Router::new()
            .fallback(pass)
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self {
            port,
            shared,
            server,
        })
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The administrator's client of the API server behind this proxy.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn client(&self, cluster: &Cluster) -> Result<kube::Client> {
        cluster.client_at(&self.url())
    }

    /// The writes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.shared.seen().writes.clone()
    }

    /// The reads so far: paths with their queries, each once.
    #[must_use]
    pub fn reads(&self) -> BTreeSet<String> {
        self.shared.seen().reads.clone()
    }

    /// Calls the hook once, at the n-th write from now on (1 is the next).
    pub fn strike(&self, n: usize, moment: Moment, hook: impl FnOnce() + Send + 'static) {
        let mut seen = self.shared.seen();
        seen.strike = Some((seen.writes.len() + n, moment, Box::new(hook)));
    }

    /// Keeps the next write whose path ends so from the server.
    #[must_use]
    pub fn hold(&self, path: &str) -> Held {
        let ((told, came), (go, going)) = (oneshot::channel(), oneshot::channel());
        self.shared.seen().hold = Some(Hold {
            path: path.to_owned(),
            came: told,
            go: going,
        });
        Held { came, go }
    }

    /// From now on requests are answered so much later, one after another by these times.
    pub fn delay(&self, latencies: impl IntoIterator<Item = Duration>) {
        self.shared.seen().latencies = latencies.into_iter().collect();
    }

    /// Forgets the hook, if it is still waiting for its write.
    pub fn disarm(&self) {
        self.shared.seen().strike = None;
    }

    /// Whether the hook is still waiting for its write.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.shared.seen().strike.is_some()
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let number = note(&shared, &request);
    tokio::time::sleep(shared.latency()).await;
    if let Some(hook) = number.and_then(|number| shared.hook(number, Moment::BeforeForwarding)) {
        hook();
        hang_up();
    }
    if number.is_some()
        && let Some(hold) = shared.held(request.uri().path())
    {
        let _ = hold.came.send(());
        // The test lets it go, or has ended.
        let _ = hold.go.await;
    }
    let response = match forward(&shared, request).await {
        Ok(response) => response,
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            return response;
        }
    };
    let Some(number) = number else {
        return response;
    };
    shared.seen().writes[number - 1].status = Some(response.status());
    if let Some(hook) = shared.hook(number, Moment::BeforeAnswering) {
        hook();
        hang_up();
    }
    if let Some(hook) = shared.hook(number, Moment::AfterAnswering) {
        let (parts, body) = response.into_parts();
        let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
            hang_up()
        };
        // The answer is on its way once this handler returns, and is read
        // within far less than this.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            hook();
        });
        return Response::from_parts(parts, Body::from(bytes));
    }
    response
}

/// Ends the connection without an answer: a server's handler has no other way
/// to say this. Unlike a panic it prints nothing.
fn hang_up() -> ! {
    std::panic::resume_unwind(Box::new("hang up"))
}

/// Notes a write and returns its number, from 1.
fn note(shared: &Shared, request: &Request) -> Option<usize> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
    // The lease is renewed all the time.
    if request.uri().path().contains("/leases") {
        return None;
    }
    let mut seen = shared.seen();
    if reads.contains(request.method()) {
        seen.reads.insert(path.to_owned());
        return None;
    }
    seen.writes.push(Write {
        method: request.method().clone(),
        path: path.to_owned(),
        status: None,
    });
    Some(seen.writes.len())
}

async fn forward(shared: &Shared, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let body = axum::body::to_bytes(body, usize::MAX)
        .await
        .map_err(Error::other)?;
    let answer = shared
        .client
        .request(parts.method, format!("{}{path}", shared.upstream))
        .headers(end_to_end(parts.headers))
        .body(body)
        .send()
        .await?;
    let (parts, body) = http::Response::from(answer).into_parts();
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = end_to_end(parts.headers);
    Ok(response)
}

/// Without the headers that belong to one connection.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}
