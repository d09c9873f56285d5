//! The serving certificate of a webhook replica: the last valid leaf of the Secret, replaced without closing
//! connections (CERT-3).
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use asya_certs::serve::{self, Certificates, Trusted};
//!
//! let certificates = Certificates::new(vec!["asya-webhook.asya-system.svc".to_owned()]);
//! let tls = serve::tls(certificates.clone(), None)?; // for the acceptor of connections
//! tokio::spawn(certificates.clone().follow(client, "asya-system".to_owned(), "asya-webhook-tls".to_owned()));
//! // whenever the ConfigMap with the applied bundle's fingerprints changes
//! certificates.trust(Trusted::read(["5a…", "c1…"]));
//! // for /readyz and for metrics
//! let (ready, metrics) = (certificates.ready(asya_process::clock::now()), certificates.metrics());
//! # Ok(()) }
//! ```

mod follow;
mod leaf_selector;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use asya_process::clock;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};

use self::leaf_selector::LeafSelector;
use crate::data::Data;
use crate::parsed_secret::Leaf;

pub use self::leaf_selector::{CertificateMetrics, NotReady, Trusted};

/// Why the TLS configuration could not be built.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The client CA is not PEM, or cannot sign client certificates.
    #[error("cannot read the client CA: {0}")]
    ClientCa(String),
    /// The crypto provider lacks a feature; tests show that ours has it.
    #[error(transparent)]
    Provider(#[from] rustls::Error),
}

/// The server's TLS configuration: TLS 1.2 or newer, HTTP/2 and HTTP/1.1, with the current leaf of `certificates`. With
/// `clients`, one or more CAs in PEM form, only clients with a certificate of one of them pass the handshake (CERT-8).
///
/// # Errors
/// If `clients` cannot be read.
pub fn tls(certificates: Certificates, clients: Option<&str>) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let roots = Arc::new(roots(pem)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(|error| TlsError::ClientCa(error.to_string()))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| TlsError::ClientCa(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::ClientCa(error.to_string()))?;
    }
    Ok(roots)
}

/// The served leaf and its state. Clones share state.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    names: Vec<String>,
    selector: Mutex<LeafSelector>,
    /// Not behind the lock of `selector`, so that handshakes never wait for it.
    served: RwLock<Option<Arc<CertifiedKey>>>,
}

impl Certificates {
    /// Starts without a leaf. A leaf must cover all of `names`.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self(Arc::new(Inner {
            names,
            selector: Mutex::default(),
            served: RwLock::default(),
        }))
    }

    /// Takes the current data of the Secret; `None` if it does not exist.
    pub fn update_secret(&self, data: Option<Data>, now: Timestamp) {
        let leaf = Leaf::read(&data.unwrap_or_default().into_server_data());
        self.change(now, |selector| selector.set_candidate(leaf));
    }

    /// Sets which CAs the API servers trust: those of the applied `caBundle`.
    pub fn trust(&self, trusted: Trusted) {
        self.change(clock::now(), |selector| selector.trust(trusted));
    }

    /// Records why the Secret cannot be read, to be reported until it has been read once.
    fn record_read_error(&self, reason: &str) {
        self.change(clock::now(), |selector| {
            selector.record_read_error(reason);
        });
    }

    /// Whether clients accept the served leaf, as far as this is known (AVL-2).
    ///
    /// # Errors
    /// The reason why they do not.
    pub fn ready(&self, now: Timestamp) -> Result<(), NotReady> {
        self.0.selector.lock().ready(&self.0.names, now)
    }

    /// Returns the values for the metrics.
    #[must_use]
    pub fn metrics(&self) -> CertificateMetrics {
        self.0.selector.lock().metrics()
    }

    /// Follows the Secret forever, with a watch of this one object. `client` should have a read timeout of about a
    /// minute, because the watch restarts every 50 seconds (CERT-3).
    pub async fn follow(self, client: kube::Client, namespace: String, name: String) {
        follow::follow(self, client, &namespace, &name).await;
    }

    /// Re-evaluates the selection, because a leaf may have become valid or expired.
    fn reevaluate(&self, now: Timestamp) {
        self.change(now, |_| {});
    }

    fn change(&self, now: Timestamp, change: impl FnOnce(&mut LeafSelector)) {
        let mut selector = self.0.selector.lock();
        let previous = selector.problem().cloned();
        change(&mut selector);
        if let Some(leaf) = selector.reevaluate(&self.0.names, now) {
            let certificate = &leaf.certificate;
            info!(certificate = %certificate.fingerprint, ends = %certificate.not_after, "serving a new certificate");
            *self.0.served.write() = Some(Arc::clone(&leaf.served));
        }
        let problem = selector.problem();
        if let Some(problem) = problem.filter(|_| problem != previous.as_ref()) {
            warn!(%problem, "not serving the Secret's certificate; keeping the last valid one");
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.served.read().clone()
    }
}
