//! A TLS proxy in front of a plaintext server.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::error::{Context, Error, Result};
use crate::pki::{TestCa, Use};

/// A proxy on a loopback port, with a certificate signed by its own CA; stops when dropped.
pub struct TlsProxy {
    /// The proxy's URL.
    pub url: String,
    /// The CA certificate.
    pub ca: String,
    task: JoinHandle<()>,
}

impl TlsProxy {
    /// Starts a proxy in front of `server`, an `http` URL. Its files are in `folder`.
    ///
    /// # Errors
    /// When no certificate can be issued, or no port is free.
    pub async fn start(folder: &Path, server: &str) -> Result<Self> {
        let address = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.context("listen for TLS")?;
        let port = listener.local_addr().context("listen for TLS")?.port();
        let name = format!("tls-{port}");
        let authority = TestCa::new("a private authority")?;
        authority.issue(folder, &name, "localhost", &["localhost"], Use::Server)?;
        let read = |kind: &str| {
            let path = folder.join(format!("{name}.{kind}"));
            std::fs::read(&path).context(format_args!("read {}", path.display()))
        };
        let certificates = read("crt")?;
        let certificates = CertificateDer::pem_slice_iter(&certificates).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(&read("key")?).map_err(Error::other)?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(certificates.map_err(Error::other)?, key)
            .map_err(Error::other)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, address) = (acceptor.clone(), address.clone());
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await?;
                    let mut server = TcpStream::connect(address).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Ok(Self {
            url: format!("https://localhost:{port}"),
            ca: authority.pem().to_owned(),
            task,
        })
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}
