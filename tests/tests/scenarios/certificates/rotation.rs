//! Rotations in seconds, seen by a client that trusts what the webhook configurations would say.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asya_certs::certificate::Fingerprint;
use asya_certs::serve::{Certificates, tls};
use asya_tests::eventually::eventually;
use asya_tests::{Error, Result};
use kube::api::DeleteParams;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{SOON, Stage, names};

/// Lives that end while a test waits.
const SHORT: [&str; 3] = [
    "--webhook-certificate-life=8s",
    "--webhook-ca-life=24s",
    "--webhook-certificate-check=100ms",
];
const CAS: usize = 3;
/// A client like an API server with 50 reviews a second.
const PACE: Duration = Duration::from_millis(20);
/// An API server learns of a bundle so late at most; they get two seconds.
const LATE: Duration = Duration::from_millis(500);

/// CERT-3, CERT-4: every handshake succeeds while CAs and leaves come and go.
pub(super) async fn reaches_every_handshake(stage: &Stage) -> Result<()> {
    // Certificates of a year are not followed by such of seconds.
    stage
        .secrets
        .delete(super::SECRET, &DeleteParams::default())
        .await?;
    let instance = stage.start("rotating", &SHORT).await?;
    let port = serve(stage.replica.clone()).await?;
    let mut bundle = Bundle::default();
    let (mut served, mut trusted) = (HashSet::new(), BTreeSet::<Fingerprint>::new());
    let (mut handshakes, started) = (0, Instant::now());
    let name = names(stage.operator.namespace()).swap_remove(0);
    eventually(
        "the first of the short-lived leaves is served",
        SOON,
        async || {
            let roots = Bundle::read(stage).await?;
            handshake(port, &name, &roots).await?;
            Ok(())
        },
    )
    .await?;
    let mut pace = tokio::time::interval(PACE);
    while trusted.len() < CAS {
        pace.tick().await;
        assert!(started.elapsed() < Duration::from_mins(2), "{trusted:?}");
        if bundle.read.is_none_or(|read| read.elapsed() > LATE) {
            bundle = Bundle::read(stage).await?;
            trusted.extend(&bundle.fingerprints);
        }
        let leaf = handshake(port, &name, &bundle).await;
        served.insert(leaf.map_err(|error| {
            Error::Other(format!("handshake {handshakes}, {trusted:?}: {error}"))
        })?);
        handshakes += 1;
    }
    eprintln!(
        "{handshakes} handshakes in {:?}, none failed: {} leaves of {} CAs",
        started.elapsed(),
        served.len(),
        trusted.len()
    );
    assert!(served.len() > 3 && handshakes > 100);
    stage.nothing_leaked(&[&instance]).await
}

/// What an API server trusts.
#[derive(Default)]
struct Bundle {
    roots: Vec<CertificateDer<'static>>,
    fingerprints: Vec<Fingerprint>,
    read: Option<Instant>,
}

impl Bundle {
    async fn read(stage: &Stage) -> Result<Self, kube::Error> {
        let read = Instant::now();
        let all = stage.secret().await?.bundle().authorities;
        Ok(Self {
            roots: all.iter().map(|it| it.der().clone()).collect(),
            fingerprints: all.iter().map(|it| it.fingerprint).collect(),
            read: Some(read),
        })
    }
}

/// A webhook that accepts connections and says nothing.
async fn serve(certificates: Certificates) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(Error::other)?;
    let port = listener.local_addr().map_err(Error::other)?.port();
    let acceptor = TlsAcceptor::from(Arc::new(tls(certificates).map_err(Error::other)?));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(stream).await.map(drop) });
        }
    });
    Ok(port)
}

/// Connects as an API server does, and tells by which leaf.
async fn handshake(
    port: u16,
    name: &str,
    bundle: &Bundle,
) -> std::io::Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    for root in &bundle.roots {
        roots.add(root.clone()).map_err(std::io::Error::other)?;
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(name.to_owned()).map_err(std::io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let shown = stream.get_ref().1.peer_certificates();
    let shown = shown.and_then(|chain| chain.first().cloned());
    shown.ok_or_else(|| std::io::Error::other("no certificate"))
}
