//! A certificate in a Secret or a `caBundle`.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Identifies a certificate: the SHA-256 of its DER form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let mut bytes = [0; 32];
        let pairs = text.as_bytes().chunks_exact(2);
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Unreadable);
        }
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let pair = std::str::from_utf8(pair).map_err(|_| Unreadable)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| Unreadable)?;
        }
        Ok(Self(bytes))
    }
}

/// The input is not a valid certificate, key or fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid certificate, key or fingerprint")]
pub struct Unreadable;

/// A certificate, with the fields that are checked.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// Start of the validity.
    pub not_before: Timestamp,
    /// End of the validity, exclusive, to the second.
    pub not_after: Timestamp,
    /// Whether it is a CA certificate.
    pub is_ca: bool,
    /// SHA-256 of the DER form.
    pub fingerprint: Fingerprint,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("fingerprint", &self.fingerprint)
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Parses a certificate in DER form.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, Unreadable> {
        let (rest, parsed) = X509Certificate::from_der(&der).map_err(|_| Unreadable)?;
        // A certificate that rustls cannot parse can be neither served nor trusted.
        ParsedCertificate::try_from(&der).map_err(|_| Unreadable)?;
        let timestamp = |seconds| Timestamp::from_second(seconds).map_err(|_| Unreadable);
        let (not_before, not_after) = (
            timestamp(parsed.validity().not_before.timestamp())?,
            timestamp(parsed.validity().not_after.timestamp())?,
        );
        let is_ca = parsed.is_ca();
        if !rest.is_empty() {
            return Err(Unreadable);
        }
        Ok(Self {
            fingerprint: Fingerprint(Sha256::digest(&der).into()),
            not_before,
            not_after,
            is_ca,
            der,
        })
    }

    /// Parses all certificates in a PEM text, without duplicates; unreadable ones are skipped.
    #[must_use]
    pub fn all_in(pem: &[u8]) -> Vec<Self> {
        let mut certificates: Vec<Self> = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem).flatten() {
            match Self::from_der(der) {
                Ok(certificate) if !certificates.contains(&certificate) => {
                    certificates.push(certificate);
                }
                Ok(_) | Err(Unreadable) => {}
            }
        }
        certificates
    }

    /// Returns the DER form.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns the PEM form.
    #[must_use]
    pub fn pem(&self) -> String {
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new("CERTIFICATE", &*self.der), config)
    }

    /// Returns the public key as a `SubjectPublicKeyInfo`, comparable with that of a key pair.
    pub(crate) fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        let parsed = ParsedCertificate::try_from(&self.der).ok()?;
        Some(parsed.subject_public_key_info())
    }

    /// Whether a client that trusts only `ca` accepts this as a server certificate, with `others` as
    /// intermediates.
    pub(crate) fn is_issued_by(&self, ca: &Self, others: &[CertificateDer<'_>]) -> bool {
        let mut roots = RootCertStore::empty();
        let (Ok(()), Ok(parsed)) = (
            roots.add(ca.der.clone()),
            ParsedCertificate::try_from(&self.der),
        ) else {
            return false;
        };
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        // Verify at the start of the validity, because expiry is a separate fault.
        let time = self.not_before.as_second().try_into().unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, time, algorithms.all)
            .is_ok()
    }

    /// Whether the certificate covers this server name, a DNS name or an IP address.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        let (Ok(name), Ok(parsed)) = (
            ServerName::try_from(name),
            ParsedCertificate::try_from(&self.der),
        ) else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }
}

/// Concatenates the certificates in PEM form, for `ca.crt` and `caBundle`.
#[must_use]
pub fn to_pem_bundle<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> String {
    certificates.into_iter().map(Certificate::pem).collect()
}
