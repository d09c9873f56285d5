//! A mutating webhook that runs after ours and removes the sidecar (SIM-9).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::serve::Listener;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::{Context, Error, Result};
use crate::pki::{TestCa, Use};
use crate::scenario::Scenario;

/// The name of the container that it removes.
const SIDECAR: &str = "asya-sidecar";

/// The webhook (SIM-9). The server stops when dropped; [`SidecarRemover::unregister`] deletes its configuration.
pub struct SidecarRemover {
    configurations: Api<MutatingWebhookConfiguration>,
    name: String,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

/// Counts removals, and records whether dry runs are exempt.
#[derive(Default)]
struct Seen {
    removed: AtomicUsize,
    exempts_dry_runs: AtomicBool,
}

/// Whether the API server calls the webhook again after a later webhook has changed the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reinvoked {
    /// `reinvocationPolicy: IfNeeded`: its change is the last.
    IfNeeded,
    /// `reinvocationPolicy: Never`: an earlier webhook that is reinvoked makes the last change.
    Never,
}

impl SidecarRemover {
    /// Starts the server and registers it for the pods of the scenario's namespace. Webhooks are called in the order of
    /// their configurations' names; this name sorts last.
    ///
    /// # Errors
    /// When the server cannot listen, or the API server rejects the configuration.
    pub async fn start(scenario: &Scenario, reinvoked: Reinvoked) -> Result<Self> {
        let name = format!("zz-{}", scenario.name("sidecar-remover"));
        let folder = scenario.cluster().folder().join(&name);
        std::fs::create_dir_all(&folder).context(format_args!("make {}", folder.display()))?;
        let authority = TestCa::new("sidecar-remover-ca")?;
        authority.issue(
            &folder,
            "tls",
            "sidecar-remover",
            &["127.0.0.1"],
            Use::Server,
        )?;
        let chain = CertificateDer::pem_file_iter(folder.join("tls.crt"));
        let chain: Result<Vec<_>, _> = chain.map_err(Error::other)?.collect();
        let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).map_err(Error::other)?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain.map_err(Error::other)?, key)
            .map_err(Error::other)?;
        let sockets = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let address = sockets.local_addr().context("listen")?;
        let seen: Arc<Seen> = Arc::default();
        let routes = Router::new()
            .route("/remove", post(review))
            .with_state(Arc::clone(&seen));
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = Encrypted { sockets, acceptor };
        let task = tokio::spawn(async move {
            // The server runs until the task is aborted.
            let _ = axum::serve(listener, routes).await;
        });
        let remover = Self {
            configurations: Api::all(scenario.client()),
            name,
            seen,
            task,
        };
        let url = format!("https://{address}/remove");
        remover
            .register(scenario.namespace(), &url, &authority, reinvoked)
            .await?;
        Ok(remover)
    }

    async fn register(
        &self,
        namespace: &str,
        url: &str,
        authority: &TestCa,
        reinvoked: Reinvoked,
    ) -> Result<()> {
        let bundle = ByteString(authority.pem().as_bytes().to_vec());
        let configuration = serde_json::from_value(json!({
            "metadata": {"name": self.name},
            "webhooks": [{
                "name": "remove-sidecar.example.com",
                "clientConfig": {"url": url, "caBundle": bundle},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                    "operations": ["CREATE"], "scope": "Namespaced",
                }],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                // Fail, so that a scenario cannot pass because the webhook was not called.
                "failurePolicy": "Fail",
                "reinvocationPolicy": format!("{reinvoked:?}"),
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 5,
            }],
        }))?;
        self.configurations
            .create(&PostParams::default(), &configuration)
            .await?;
        Ok(())
    }

    /// How many times it removed a sidecar, dry runs included.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.seen.removed.load(Ordering::Relaxed)
    }

    /// Exempts dry runs from now on, so that they do not reveal the removal.
    pub fn exempt_dry_runs(&self) {
        self.seen.exempts_dry_runs.store(true, Ordering::Relaxed);
    }

    /// Deletes the webhook configuration, so that the webhook is no longer called.
    ///
    /// # Errors
    /// When the API server rejects the request.
    pub async fn unregister(&self) -> Result<()> {
        let params = DeleteParams::default();
        self.configurations.delete(&self.name, &params).await?;
        Ok(())
    }
}

impl Drop for SidecarRemover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn review(State(seen): State<Arc<Seen>>, body: Bytes) -> impl IntoResponse {
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = &review["request"];
    let is_exempt = request["dryRun"] == true && seen.exempts_dry_runs.load(Ordering::Relaxed);
    let patch = without_sidecar(&request["object"]["spec"]).filter(|_| !is_exempt);
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if let Some(patch) = patch {
        seen.removed.fetch_add(1, Ordering::Relaxed);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(ByteString(patch.to_string().into_bytes()));
    }
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    });
    ([(CONTENT_TYPE, "application/json")], answer.to_string())
}

fn without_sidecar(spec: &Value) -> Option<Value> {
    ["containers", "initContainers"].iter().find_map(|list| {
        let index = spec[list]
            .as_array()?
            .iter()
            .position(|it| it["name"] == SIDECAR)?;
        let path = format!("/spec/{list}/{index}");
        Some(json!([{"op": "remove", "path": path}]))
    })
}

/// A listener that accepts TLS connections.
struct Encrypted {
    sockets: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (socket, address) = Listener::accept(&mut self.sockets).await;
            let handshake = timeout(Duration::from_secs(5), self.acceptor.accept(socket));
            if let Ok(Ok(stream)) = handshake.await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.sockets.local_addr()
    }
}

#[cfg(test)]
mod tests;
