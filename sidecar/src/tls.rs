//! TLS client configuration: TLS 1.2 or later, with certificate and host name verification that cannot be disabled
//! (SC-99).

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// A client configuration that trusts only a PEM bundle, or else the built-in roots. The bundle is read on every call.
///
/// # Errors
/// If the bundle cannot be read or contains no certificate.
pub fn client(bundle: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    match bundle {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(io::Error::other)? {
                let certificate = certificate.map_err(io::Error::other)?;
                roots.add(certificate).map_err(io::Error::other)?;
            }
            if roots.is_empty() {
                return Err(io::Error::other(format!(
                    "{} contains no certificate",
                    path.display()
                )));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
