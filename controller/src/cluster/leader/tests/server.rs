//! An in-memory API server with one lease.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use tokio::time::sleep;
use tower::BoxError;

/// State of a client's connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Works,
    /// The server takes this long for each request.
    Slow(Duration),
    /// Requests are lost.
    Silent,
    /// Writes take effect, but their responses are lost.
    LosesResponses,
    /// The server responds with this status code and does nothing.
    Fails(u16),
}

#[derive(Clone, Default)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    version: u64,
    writes: usize,
}

impl Server {
    /// A client with its own link, which the test can break.
    pub(super) fn client(&self) -> (Client, Arc<Mutex<Link>>) {
        let link = Arc::new(Mutex::new(Link::Works));
        let (server, own) = (self.clone(), Arc::clone(&link));
        let service = tower::service_fn(move |request| {
            let (server, link) = (server.clone(), *own.lock().unwrap());
            async move { Ok::<_, BoxError>(server.serve(request, link).await) }
        });
        (Client::new(service, "asya-system"), link)
    }

    /// The current lease.
    pub(super) fn lease(&self) -> Option<Lease> {
        self.state().lease.clone()
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.lease()?.spec?.holder_identity
    }

    /// Accepted writes of all clients.
    pub(super) fn writes(&self) -> usize {
        self.state().writes
    }

    /// Replaces the lease, as another process would.
    pub(super) fn put(&self, lease: Option<Lease>) {
        self.state().store(lease);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn serve(&self, request: Request<Body>, link: Link) -> Response<Body> {
        // Requests and responses take time, so that those of several clients overlap.
        sleep(Duration::from_millis(5)).await;
        if link == Link::Silent {
            std::future::pending::<()>().await;
        }
        if let Link::Slow(delay) = link {
            sleep(delay).await;
        }
        if let Link::Fails(code) = link {
            return failure(code);
        }
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let response = self.state().respond(&parts.method, &body);
        if link == Link::LosesResponses && parts.method != Method::GET {
            std::future::pending::<()>().await;
        }
        sleep(Duration::from_millis(5)).await;
        response
    }
}

impl State {
    fn respond(&mut self, method: &Method, body: &[u8]) -> Response<Body> {
        if *method != Method::GET {
            let desired: Lease = serde_json::from_slice(body).unwrap();
            let version = |lease: &Lease| lease.metadata.resource_version.clone();
            match &self.lease {
                Some(_) if *method == Method::POST => return failure(409),
                None if *method == Method::PUT => return failure(404),
                Some(lease) if version(lease) != version(&desired) => return failure(409),
                _ => {}
            }
            self.writes += 1;
            self.store(Some(desired));
        }
        match &self.lease {
            Some(lease) => Response::new(Body::from(serde_json::to_vec(lease).unwrap())),
            None => failure(404),
        }
    }

    fn store(&mut self, lease: Option<Lease>) {
        self.version += 1;
        self.lease = lease.map(|mut lease| {
            lease.metadata.resource_version = Some(self.version.to_string());
            lease
        });
    }
}

fn failure(code: u16) -> Response<Body> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "scripted", "reason": match code { 404 => "NotFound", 409 => "Conflict", _ => "" },
    });
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    Response::builder().status(code).body(body).unwrap()
}
