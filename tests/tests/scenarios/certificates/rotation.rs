//! Rotations within seconds, observed by a client that trusts the bundle in the webhook configurations.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use asya_certs::ca_bundle::CaBundle;
use asya_certs::certificate::Fingerprint;
use asya_certs::serve::{Certificates, Trusted, tls};
use asya_shared::admission::facts::WebhookFacts;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::{Error, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{REPAIRED, Stage, names};

/// Validity periods short enough to expire during a test.
const SHORT: [&str; 3] = [
    "--webhook-certificate-life=8s",
    "--webhook-ca-life=24s",
    "--webhook-certificate-check=100ms",
];
/// How many new CAs must become trusted.
const CAS: usize = 3;
/// The pace of an API server with 50 reviews a second.
const PACE: Duration = Duration::from_millis(20);
/// The maximum lag of an API server behind the bundle; it is given two seconds.
const LATE: Duration = Duration::from_millis(500);

/// CERT-3, CERT-4, CERT-5, CERT-7: every handshake succeeds while the Secret is lost and CAs and leaves are rotated.
pub(super) async fn reaches_every_handshake(stage: &Stage) -> Result<()> {
    let port = serve(stage.replica.clone()).await?;
    let name = names(stage.operator.namespace()).swap_remove(0);
    let mut bundle = Bundle::read(stage).await?;
    let before: BTreeSet<_> = bundle.fingerprints.iter().copied().collect();
    // Start without certificates: those valid for a year would not be rotated within seconds.
    stage
        .secrets
        .delete(super::SECRET, &DeleteParams::default())
        .await?;
    let instance = stage.start("rotating", &SHORT).await?;
    stage.replica.trust(trusted_by_webhook(stage).await?);
    let (mut served, mut new) = (HashSet::new(), BTreeSet::<Fingerprint>::new());
    let (mut handshakes, started) = (0, Instant::now());
    let mut pace = tokio::time::interval(PACE);
    while new.len() < CAS {
        pace.tick().await;
        assert!(started.elapsed() < Duration::from_mins(2), "{new:?}");
        if bundle.read.elapsed() > LATE {
            bundle = Bundle::read(stage).await?;
            stage.replica.trust(trusted_by_webhook(stage).await?);
            new.extend(bundle.fingerprints.iter().filter(|it| !before.contains(it)));
        }
        let leaf = handshake(port, &name, &bundle).await;
        served.insert(
            leaf.map_err(|error| {
                Error::Other(format!("handshake {handshakes}, {new:?}: {error}"))
            })?,
        );
        handshakes += 1;
    }
    eprintln!(
        "{handshakes} handshakes in {:?}, none failed: {} leaves, {} new CAs",
        started.elapsed(),
        served.len(),
        new.len()
    );
    assert!(served.len() > 3 && handshakes > 100);
    stage.nothing_leaked(&[&instance]).await
}

/// Waits until the configurations trust the Secret's CAs and the replicas have been informed.
pub(super) async fn is_applied(stage: &Stage) -> Result<()> {
    eventually("every caBundle is the Secret's", REPAIRED, async || {
        let held = stage.secret().await?.parsed().cas;
        let held: BTreeSet<_> = held.iter().map(|it| it.fingerprint).collect();
        let applied = Bundle::read(stage)
            .await?
            .fingerprints
            .into_iter()
            .collect();
        check(held == applied, format_args!("{held:?} {applied:?}"))?;
        let told = trusted_by_webhook(stage).await.map_err(NotYet::new)?;
        check(told == Trusted::These(held), format_args!("{told:?}"))
    })
    .await
}

/// The CAs that an API server trusts.
struct Bundle {
    roots: Vec<CertificateDer<'static>>,
    fingerprints: Vec<Fingerprint>,
    read: Instant,
}

impl Bundle {
    async fn read(stage: &Stage) -> Result<Self, kube::Error> {
        let read = Instant::now();
        let api = Api::<ValidatingWebhookConfiguration>::all(stage.cluster.client());
        let validator = api.get("asya-operator-validator").await?;
        let mut webhooks = validator.webhooks.into_iter().flatten();
        let bundle = webhooks.find_map(|it| it.client_config.ca_bundle);
        let bundle = CaBundle::read(&bundle.unwrap_or_default().0);
        let all = bundle.certificates();
        Ok(Self {
            roots: all.iter().map(|it| it.der().clone()).collect(),
            fingerprints: bundle.fingerprints().collect(),
            read,
        })
    }
}

/// The fingerprints that the controller publishes to the replicas.
async fn trusted_by_webhook(stage: &Stage) -> Result<Trusted> {
    let (client, namespace) = (stage.cluster.client(), stage.operator.namespace());
    let maps = Api::<ConfigMap>::namespaced(client, namespace);
    let map = maps.get("asya-operator-webhook-facts").await?;
    let facts = WebhookFacts::read(&map.data.unwrap_or_default());
    Ok(Trusted::read(facts.trusted.iter().map(String::as_str)))
}

/// A webhook that accepts connections and never responds.
async fn serve(certificates: Certificates) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(Error::other)?;
    let port = listener.local_addr().map_err(Error::other)?.port();
    let acceptor = TlsAcceptor::from(Arc::new(tls(certificates, None).map_err(Error::other)?));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { acceptor.accept(stream).await.map(drop) });
        }
    });
    Ok(port)
}

/// Connects as an API server does, and returns the served leaf.
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
