//! Certificates and keys of a test cluster.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::error::{Context, Error, Result};

/// Extended key usage of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Server authentication.
    Server,
    /// Client authentication.
    Client,
    /// Both.
    Both,
}

/// A certificate authority.
#[derive(Debug)]
pub struct TestCa {
    pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    /// Creates an authority with a new key.
    ///
    /// # Errors
    /// When the key or certificate cannot be created.
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let pem = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self {
            pem,
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority's certificate, as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes the certificate and key to `NAME.crt` and `NAME.key`.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        write(folder, name, &self.pem, &self.key_pem)
    }

    /// Issues a certificate and writes it to `NAME.crt` and `NAME.key`.
    ///
    /// # Errors
    /// When the certificate cannot be issued or written.
    pub fn issue(
        &self,
        folder: &Path,
        name: &str,
        common_name: &str,
        hosts: &[&str],
        usage: Use,
    ) -> Result<()> {
        let key = KeyPair::generate().map_err(failed)?;
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = match usage {
            Use::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Use::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Use::Both => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        };
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        write(folder, name, &certificate.pem(), &key.serialize_pem())
    }
}

/// Creates a key pair and writes the key that signs tokens to `NAME.key` and the key that verifies them to `NAME.pub`.
///
/// # Errors
/// When the key cannot be created or written.
pub fn write_signing_key(folder: &Path, name: &str) -> Result<()> {
    let key = KeyPair::generate().map_err(failed)?;
    write_file(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
    write_file(&folder.join(format!("{name}.pub")), &key.public_key_pem())
}

fn write(folder: &Path, name: &str, certificate: &str, key: &str) -> Result<()> {
    write_file(&folder.join(format!("{name}.crt")), certificate)?;
    write_file(&folder.join(format!("{name}.key")), key)
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).context(format_args!("write {}", path.display()))
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn failed(error: rcgen::Error) -> Error {
    Error::Other(format!("certificate: {error}"))
}
