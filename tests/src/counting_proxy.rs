//! A proxy in front of the API server or RabbitMQ's management API. It counts requests, runs a hook at the nth write,
//! holds back a write until a test releases it, delays responses, and cuts watches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::{StreamExt, stream};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use http::{Method, StatusCode};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::error::{Context, Error, Result};

/// When the hook runs, relative to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// The server never receives the request; the client gets no response.
    BeforeForwarding,
    /// The server has processed the request; the client gets no response.
    BeforeAnswering,
    /// The server has processed the request and the client has its response.
    AfterAnswering,
}

/// A mutating request that passed through the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The HTTP method.
    pub method: Method,
    /// The path and query as sent.
    pub path: String,
    /// The server's status; `None` if the request was not forwarded or not answered.
    pub status: Option<StatusCode>,
}

type Hook = Box<dyn FnOnce() + Send>;

/// A hook that has yet to run.
struct PendingHook {
    /// The number of the write.
    number: usize,
    point: HookPoint,
    run: Hook,
}

/// A write that the proxy holds back when it arrives.
pub struct HeldWrite {
    arrived: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

impl HeldWrite {
    /// Waits until the write has arrived. Dropping the returned guard forwards it to the server.
    ///
    /// # Errors
    /// When the proxy has stopped.
    pub async fn arrived(self) -> Result<impl Send> {
        self.arrived.await.map_err(Error::other)?;
        Ok(self.release)
    }
}

/// The proxy's side of [`HeldWrite`].
struct Hold {
    path: String,
    arrived: oneshot::Sender<()>,
    release: oneshot::Receiver<()>,
}

#[derive(Default)]
struct Seen {
    writes: Vec<Write>,
    /// Paths with their queries, and how often each was read.
    reads: BTreeMap<String, usize>,
    hook: Option<PendingHook>,
    hold: Option<Hold>,
    latencies: Vec<Duration>,
    /// Index into `latencies` of the next request's delay.
    late: usize,
}

struct Shared {
    upstream: String,
    client: Client,
    seen: Mutex<Seen>,
    /// Counts how often watches were cut.
    cuts: watch::Sender<u32>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the hold, if it is for a write to this path.
    fn held(&self, path: &str) -> Option<Hold> {
        self.seen().hold.take_if(|hold| path.ends_with(&hold.path))
    }

    /// The delay of the next request.
    fn latency(&self) -> Duration {
        let mut seen = self.seen();
        let number = seen.late;
        let Some(latency) = seen.latencies.iter().cycle().nth(number).copied() else {
            return Duration::ZERO;
        };
        seen.late = (number + 1) % seen.latencies.len();
        latency
    }

    /// Takes the hook, if it is to run at this point of this write.
    fn take_hook(&self, number: usize, point: HookPoint) -> Option<Hook> {
        let mut seen = self.seen();
        let pending = seen
            .hook
            .take_if(|hook| (hook.number, hook.point) == (number, point));
        pending.map(|hook| hook.run)
    }
}

/// The proxy; stops when dropped.
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
    /// Starts a proxy in front of a cluster's API server. Leases are not counted.
    ///
    /// # Errors
    /// When the proxy cannot listen.
    pub async fn to_api_server(cluster: &Cluster) -> Result<Self> {
        Self::start(
            &cluster.state().api_server,
            Some(&cluster.folder().join("ca.crt")),
        )
        .await
    }

    /// Starts a proxy in front of a cluster's RabbitMQ management API.
    ///
    /// # Errors
    /// When the cluster has no RabbitMQ, or the proxy cannot listen.
    pub async fn to_rabbitmq(cluster: &Cluster) -> Result<Self> {
        Self::start(&cluster.rabbitmq()?.management_url(), None).await
    }

    async fn start(upstream: &str, ca_file: Option<&Path>) -> Result<Self> {
        crate::install_crypto_provider();
        // No timeout, because watches are long-lived.
        let mut client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        if let Some(path) = ca_file {
            let pem = std::fs::read(path).context(format_args!("read {}", path.display()))?;
            client = client.tls_certs_only([reqwest::Certificate::from_pem(&pem)?]);
        }
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            client: client.build()?,
            seen: Mutex::default(),
            cuts: watch::Sender::default(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("listen for a proxy")?;
        let port = listener.local_addr().context("listen for a proxy")?.port();
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

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The administrator's client for the API server, through this proxy.
    ///
    /// # Errors
    /// When the client cannot be created.
    pub fn client(&self, cluster: &Cluster) -> Result<kube::Client> {
        cluster.client_at(&self.url())
    }

    /// Writes the administrator's kubeconfig, with this proxy as its server, into the cluster's folder, and returns its
    /// path.
    ///
    /// # Errors
    /// When the cluster's kubeconfig cannot be read, or this one not be written.
    pub fn kubeconfig(&self, cluster: &Cluster, name: &str) -> Result<PathBuf> {
        let text = std::fs::read(&cluster.state().kubeconfig).map_err(Error::other)?;
        let mut config: Value = serde_json::from_slice(&text)?;
        config["clusters"][0]["cluster"] = json!({"server": self.url()});
        let file = cluster.folder().join(name);
        std::fs::write(&file, config.to_string()).map_err(Error::other)?;
        Ok(file)
    }

    /// The writes so far.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.shared.seen().writes.clone()
    }

    /// The reads so far: paths with their queries, without duplicates.
    #[must_use]
    pub fn reads(&self) -> BTreeSet<String> {
        self.shared.seen().reads.keys().cloned().collect()
    }

    /// How often each path and query was read so far.
    #[must_use]
    pub fn read_counts(&self) -> BTreeMap<String, usize> {
        self.shared.seen().reads.clone()
    }

    /// Breaks the connection of every watch that is open.
    pub fn cut_watches(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Runs the hook once, at the nth write from now (1 is the next).
    pub fn on_write(&self, n: usize, point: HookPoint, hook: impl FnOnce() + Send + 'static) {
        let mut seen = self.shared.seen();
        seen.hook = Some(PendingHook {
            number: seen.writes.len() + n,
            point,
            run: Box::new(hook),
        });
    }

    /// Holds back the next write whose path ends with `path`.
    #[must_use]
    pub fn hold(&self, path: &str) -> HeldWrite {
        let ((arrival, arrived), (release, released)) = (oneshot::channel(), oneshot::channel());
        self.shared.seen().hold = Some(Hold {
            path: path.to_owned(),
            arrived: arrival,
            release: released,
        });
        HeldWrite { arrived, release }
    }

    /// Delays requests from now on by these times, in rotation.
    pub fn delay(&self, latencies: impl IntoIterator<Item = Duration>) {
        self.shared.seen().latencies = latencies.into_iter().collect();
    }

    /// Removes the hook, if it has not run yet.
    pub fn remove_hook(&self) {
        self.shared.seen().hook = None;
    }

    /// Whether the hook has yet to run.
    #[must_use]
    pub fn hook_pending(&self) -> bool {
        self.shared.seen().hook.is_some()
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    // Subscribe before counting, so that a counted watch can be cut.
    let cuts = shared.cuts.subscribe();
    let number = note(&shared, &request);
    tokio::time::sleep(shared.latency()).await;
    if let Some(hook) =
        number.and_then(|number| shared.take_hook(number, HookPoint::BeforeForwarding))
    {
        hook();
        hang_up();
    }
    if number.is_some()
        && let Some(hold) = shared.held(request.uri().path())
    {
        let _ = hold.arrived.send(());
        // Wait until the test releases the write or ends.
        let _ = hold.release.await;
    }
    let response = match forward(&shared, request, cuts).await {
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
    if let Some(hook) = shared.take_hook(number, HookPoint::BeforeAnswering) {
        hook();
        hang_up();
    }
    if let Some(hook) = shared.take_hook(number, HookPoint::AfterAnswering) {
        let (parts, body) = response.into_parts();
        let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
            hang_up()
        };
        // The response is sent once this handler returns, and the client reads it well within this delay.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            hook();
        });
        return Response::from_parts(parts, Body::from(bytes));
    }
    response
}

/// Closes the connection without a response: a handler cannot do so in another way. Unlike a panic, this prints
/// nothing.
fn hang_up() -> ! {
    std::panic::resume_unwind(Box::new("hang up"))
}

/// Records a write and returns its number, from 1.
fn note(shared: &Shared, request: &Request) -> Option<usize> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
    // Leases are renewed all the time.
    if request.uri().path().contains("/leases") {
        return None;
    }
    let mut seen = shared.seen();
    if reads.contains(request.method()) {
        *seen.reads.entry(path.to_owned()).or_default() += 1;
        return None;
    }
    seen.writes.push(Write {
        method: request.method().clone(),
        path: path.to_owned(),
        status: None,
    });
    Some(seen.writes.len())
}

async fn forward(
    shared: &Shared,
    request: Request,
    cuts: watch::Receiver<u32>,
) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let cuts = path.contains("watch=true").then_some(cuts);
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
    let body = Body::new(body);
    let body = match cuts {
        Some(cuts) => until_cut(body, cuts),
        None => body,
    };
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = end_to_end(parts.headers);
    Ok(response)
}

/// The body until watches are cut, then an error, which makes the server break the connection.
fn until_cut(body: Body, cuts: watch::Receiver<u32>) -> Body {
    let open = (body.into_data_stream(), cuts);
    Body::from_stream(stream::unfold(open, async |(mut body, mut cuts)| {
        let chunk = tokio::select! {
            chunk = body.next() => chunk?,
            _ = cuts.changed() => Err(axum::Error::new(std::io::Error::other("the watch is cut"))),
        };
        Some((chunk, (body, cuts)))
    }))
}

/// Removes the headers that apply to a single connection.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers
}
