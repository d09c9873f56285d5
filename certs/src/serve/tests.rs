#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Certificates, Trusted, tls};
use crate::certificate::Certificate;
use crate::issuer::Ca;
use crate::testing::{NAME, SecretBuilder, names, settings};

/// Starts an echo server with these certificates.
async fn server(certificates: Certificates) -> u16 {
    server_for(certificates, None).await
}

/// Starts an echo server that, with `clients`, accepts only clients of this CA.
async fn server_for(certificates: Certificates, clients: Option<&str>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(tls(certificates, clients).unwrap()));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    stream.write_all(&byte).await.unwrap();
                }
            });
        }
    });
    port
}

/// A client like the API server, which trusts one CA.
struct Client {
    ca: Certificate,
    versions: Vec<&'static SupportedProtocolVersion>,
    protocol: &'static [u8],
    /// Client certificate and private key.
    identity: Option<(CertificateDer<'static>, Vec<u8>)>,
}

impl Client {
    fn trusting(ca: &Ca) -> Self {
        Self {
            ca: ca.certificate.clone(),
            versions: rustls::DEFAULT_VERSIONS.to_vec(),
            protocol: b"h2",
            identity: None,
        }
    }

    async fn connect(&self, port: u16) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivatePkcs8KeyDer::from(key.clone());
                let chain = vec![certificate.clone()];
                config.with_client_auth_cert(chain, key.into()).unwrap()
            }
        };
        config.alpn_protocols = vec![self.protocol.to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

fn served_certificate(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

async fn assert_echo(stream: &mut TlsStream<TcpStream>) {
    let mut byte = [0];
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    assert_eq!(byte, *b"x");
}

fn offer(certificates: &Certificates, ca: &Ca) -> CertificateDer<'static> {
    let secret = SecretBuilder::default()
        .leaf(ca, &settings(), Timestamp::now())
        .trusting(&[&ca.certificate]);
    certificates.update_secret(Some(secret.0.clone()), Timestamp::now());
    secret.read().certificate.der().clone()
}

/// CERT-3
#[tokio::test]
async fn new_leaf_is_served_immediately_and_open_connections_survive() {
    let certificates = Certificates::new(names());
    certificates.trust(Trusted::All);
    let port = server(certificates.clone()).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let ca = Ca::new(&settings(), Timestamp::now()).unwrap();
        let leaf = offer(&certificates, &ca);
        let mut stream = Client::trusting(&ca).connect(port).await.unwrap();
        assert_eq!(served_certificate(&stream), leaf);
        assert_echo(&mut stream).await;
        open.push(stream);
    }
    for stream in &mut open {
        assert_echo(stream).await;
    }
    assert_eq!(certificates.metrics().swapped, 3);
}

/// CERT-8
#[tokio::test]
async fn tls_1_2_and_1_3_with_http_1_1_and_2_are_supported() {
    let certificates = Certificates::new(names());
    let port = server(certificates.clone()).await;
    let ca = Ca::new(&settings(), Timestamp::now()).unwrap();
    offer(&certificates, &ca);
    for (only, protocol, expected) in [
        (&version::TLS12, &b"h2"[..], ProtocolVersion::TLSv1_2),
        (&version::TLS13, b"http/1.1", ProtocolVersion::TLSv1_3),
    ] {
        let client = Client {
            versions: vec![only],
            protocol,
            ..Client::trusting(&ca)
        };
        let stream = client.connect(port).await.unwrap();
        let tls = stream.get_ref().1;
        assert_eq!(tls.protocol_version(), Some(expected));
        assert_eq!(tls.alpn_protocol(), Some(protocol));
    }
    let client = Client {
        protocol: b"http/1.0",
        ..Client::trusting(&ca)
    };
    client.connect(port).await.unwrap_err();
}

#[tokio::test]
async fn without_a_certificate_every_handshake_fails() {
    let port = server(Certificates::new(names())).await;
    let ca = Ca::new(&settings(), Timestamp::now()).unwrap();
    Client::trusting(&ca).connect(port).await.unwrap_err();
}

/// A client CA in PEM form, and a client certificate from it with its private key.
fn identity() -> (String, (CertificateDer<'static>, Vec<u8>)) {
    let [ca_key, key] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let mut client = rcgen::CertificateParams::default();
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let client_certificate = client.signed_by(&key, &issuer).unwrap();
    (
        ca_certificate.pem(),
        (client_certificate.der().clone(), key.serialize_der()),
    )
}

/// ADM-23
#[tokio::test]
async fn client_ca_admits_only_clients_that_it_signed() {
    let certificates = Certificates::new(names());
    let ca = Ca::new(&settings(), Timestamp::now()).unwrap();
    offer(&certificates, &ca);
    let ((client_ca, accepted), (_, other)) = (identity(), identity());
    let port = server_for(certificates, Some(&client_ca)).await;
    for (identity, is_accepted) in [(Some(accepted), true), (Some(other), false), (None, false)] {
        let client = Client {
            identity,
            ..Client::trusting(&ca)
        };
        // In TLS 1.3, the client learns of the rejection only after its handshake.
        let exchange = async {
            let mut stream = client.connect(port).await?;
            stream.write_all(b"x").await?;
            stream.read_exact(&mut [0]).await
        };
        assert_eq!(exchange.await.is_ok(), is_accepted);
    }
}

/// ADM-23
#[test]
fn invalid_client_ca_fails_startup() {
    for pem in [
        "",
        "rubbish",
        "-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n",
    ] {
        let error = tls(Certificates::new(names()), Some(pem)).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot read the client CA"),
            "{error}"
        );
    }
}
