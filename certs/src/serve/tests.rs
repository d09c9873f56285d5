#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Certificates, Trusted, tls};
use crate::certificate::Certificate;
use crate::mint::Authority;
use crate::testing::{Held, NAME, names, settings};

/// A server that echoes, by these certificates.
async fn server(certificates: Certificates) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(tls(certificates).unwrap()));
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

/// A client like the API server, with one CA in its bundle.
struct Client {
    authority: Certificate,
    versions: Vec<&'static SupportedProtocolVersion>,
    protocol: &'static [u8],
}

impl Client {
    fn trusting(authority: &Authority) -> Self {
        Self {
            authority: authority.certificate.clone(),
            versions: rustls::DEFAULT_VERSIONS.to_vec(),
            protocol: b"h2",
        }
    }

    async fn connect(&self, port: u16) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![self.protocol.to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

async fn echoes(stream: &mut TlsStream<TcpStream>) {
    let mut byte = [0];
    stream.write_all(b"x").await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    assert_eq!(byte, *b"x");
}

fn offer(certificates: &Certificates, authority: &Authority) -> CertificateDer<'static> {
    let held = Held::default()
        .leaf(authority, &settings(), Timestamp::now())
        .trusting(&[&authority.certificate]);
    certificates.offer(Some(held.0.clone()), Timestamp::now());
    held.read().certificate.der().clone()
}

/// CERT-3
#[tokio::test]
async fn a_new_leaf_is_served_at_once_and_open_connections_go_on() {
    let certificates = Certificates::new(names());
    certificates.trust(Trusted::All);
    let port = server(certificates.clone()).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let authority = Authority::new(&settings(), Timestamp::now()).unwrap();
        let leaf = offer(&certificates, &authority);
        let mut stream = Client::trusting(&authority).connect(port).await.unwrap();
        assert_eq!(shown(&stream), leaf);
        echoes(&mut stream).await;
        open.push(stream);
    }
    for stream in &mut open {
        echoes(stream).await;
    }
    assert_eq!(certificates.shown().swapped, 3);
}

/// CERT-8
#[tokio::test]
async fn tls_is_1_2_or_newer_and_speaks_http_2_and_1_1() {
    let certificates = Certificates::new(names());
    let port = server(certificates.clone()).await;
    let authority = Authority::new(&settings(), Timestamp::now()).unwrap();
    offer(&certificates, &authority);
    for (only, protocol, wanted) in [
        (&version::TLS12, &b"h2"[..], ProtocolVersion::TLSv1_2),
        (&version::TLS13, b"http/1.1", ProtocolVersion::TLSv1_3),
    ] {
        let client = Client {
            versions: vec![only],
            protocol,
            ..Client::trusting(&authority)
        };
        let stream = client.connect(port).await.unwrap();
        let tls = stream.get_ref().1;
        assert_eq!(tls.protocol_version(), Some(wanted));
        assert_eq!(tls.alpn_protocol(), Some(protocol));
    }
    let client = Client {
        protocol: b"http/1.0",
        ..Client::trusting(&authority)
    };
    client.connect(port).await.unwrap_err();
}

#[tokio::test]
async fn without_a_certificate_every_handshake_fails() {
    let port = server(Certificates::new(names())).await;
    let authority = Authority::new(&settings(), Timestamp::now()).unwrap();
    Client::trusting(&authority)
        .connect(port)
        .await
        .unwrap_err();
}
