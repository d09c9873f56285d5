//! What a replica of the webhook serves by: the last good leaf of the Secret, swapped under open connections (CERT-3).
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
//! let (ready, shown) = (certificates.ready(jiff::Timestamp::now()), certificates.shown());
//! # Ok(()) }
//! ```

mod choice;
mod follow;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};

use self::choice::Choice;
pub use self::choice::{NotReady, Shown, Trusted};
use crate::bundle::Leaf;
use crate::data::Data;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not PEM, or nothing that could sign a client's certificate.
    #[error("the CA of clients cannot be read: {0}")]
    ClientCa(String),
    /// rustls' provider lacks something: never, in a build that has passed its tests.
    #[error(transparent)]
    Provider(#[from] rustls::Error),
}

/// TLS as we serve it (CERT-8): 1.2 or newer, HTTP/2 and HTTP/1.1, by the certificates' present leaf. With `clients`,
/// the PEM of one or more CAs, only clients whose certificate one of them signed get further than the handshake.
///
/// # Errors
/// When `clients` cannot be read.
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

/// The leaf that is served, and what is known about it. A clone is another handle to the same one.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    names: Vec<String>,
    choice: Mutex<Choice>,
    /// Beside the choice, so that a handshake waits for nobody.
    served: RwLock<Option<Arc<CertifiedKey>>>,
}

impl Certificates {
    /// None yet. `names` is what a leaf must name.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self(Arc::new(Inner {
            names,
            choice: Mutex::default(),
            served: RwLock::default(),
        }))
    }

    /// The Secret holds this now; `None` when there is none.
    pub fn offer(&self, data: Option<Data>, now: Timestamp) {
        let leaf = Leaf::read(&data.unwrap_or_default().of_server());
        self.change(now, |choice| choice.offer(leaf));
    }

    /// Which authorities the API servers trust by now: those of the applied `caBundle`.
    pub fn trust(&self, trusted: Trusted) {
        self.change(Timestamp::now(), |choice| choice.trust(trusted));
    }

    /// Why the Secret could not be read, as long as none was.
    fn unread(&self, reason: &str) {
        self.change(Timestamp::now(), |choice| choice.unread(reason));
    }

    /// Whether clients take the leaf that is served (AVL-2), as far as we can tell.
    ///
    /// # Errors
    /// Why they do not, for people to read.
    pub fn ready(&self, now: Timestamp) -> Result<(), NotReady> {
        let choice = self.0.choice.lock();
        let choice = choice.unwrap_or_else(PoisonError::into_inner);
        choice.ready(&self.0.names, now)
    }

    /// What metrics show.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let choice = self.0.choice.lock();
        choice.unwrap_or_else(PoisonError::into_inner).shown()
    }

    /// Follows the Secret for ever, by a watch of this one object (CERT-3). `client` should have a read timeout of
    /// about a minute: the watch begins anew every 50 seconds.
    pub async fn follow(self, client: kube::Client, namespace: String, name: String) {
        follow::follow(self, client, &namespace, &name).await;
    }

    /// Lets time pass: a leaf may be good only from now on, or may have been for too long.
    fn look(&self, now: Timestamp) {
        self.change(now, |_| {});
    }

    fn change(&self, now: Timestamp, change: impl FnOnce(&mut Choice)) {
        let choice = self.0.choice.lock();
        let mut choice = choice.unwrap_or_else(PoisonError::into_inner);
        let before = choice.problem().cloned();
        change(&mut choice);
        if let Some(leaf) = choice.settle(&self.0.names, now) {
            info!(certificate = %leaf.certificate.fingerprint, ends = %leaf.certificate.not_after, "certificate is served");
            let served = self.0.served.write();
            *served.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&leaf.served));
        }
        let problem = choice.problem();
        if let Some(problem) = problem.filter(|_| problem != before.as_ref()) {
            warn!(%problem, "the Secret's certificate is not served; the last good one is");
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.served.read();
        served.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
