//! A certificate as it stands in a Secret or in a `caBundle`.

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

/// What identifies a certificate: the SHA-256 of its DER form.
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

/// What is no certificate, no key or no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be read")]
pub struct Unreadable;

/// A certificate and what of it we judge by.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// From when on it is valid.
    pub not_before: Timestamp,
    /// From when on it is not valid any more, to the second.
    pub not_after: Timestamp,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// What it is called by.
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
    /// Reads one in DER form.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, Unreadable> {
        let (rest, parsed) = X509Certificate::from_der(&der).map_err(|_| Unreadable)?;
        // What rustls cannot read can be neither served nor trusted.
        ParsedCertificate::try_from(&der).map_err(|_| Unreadable)?;
        let moment = |seconds| Timestamp::from_second(seconds).map_err(|_| Unreadable);
        let (not_before, not_after) = (
            moment(parsed.validity().not_before.timestamp())?,
            moment(parsed.validity().not_after.timestamp())?,
        );
        let is_authority = parsed.is_ca();
        if !rest.is_empty() {
            return Err(Unreadable);
        }
        Ok(Self {
            fingerprint: Fingerprint(Sha256::digest(&der).into()),
            not_before,
            not_after,
            is_authority,
            der,
        })
    }

    /// Reads all that stand in a PEM text, each once; what cannot be read is left out.
    #[must_use]
    pub fn all_in(pem: &[u8]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem).flatten() {
            match Self::from_der(der) {
                Ok(read) if !all.contains(&read) => all.push(read),
                Ok(_) | Err(Unreadable) => {}
            }
        }
        all
    }

    /// Its DER form.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Its PEM form.
    #[must_use]
    pub fn pem(&self) -> String {
        let form = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new("CERTIFICATE", &*self.der), form)
    }

    /// Its public key, as certificates and rustls give it.
    pub(crate) fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        let parsed = ParsedCertificate::try_from(&self.der).ok()?;
        Some(parsed.subject_public_key_info())
    }

    /// Whether a client that trusts `authority` alone takes it for a server's, by way of these others.
    pub(crate) fn is_of(&self, authority: &Self, others: &[CertificateDer<'_>]) -> bool {
        let mut roots = RootCertStore::empty();
        let (Ok(()), Ok(parsed)) = (
            roots.add(authority.der.clone()),
            ParsedCertificate::try_from(&self.der),
        ) else {
            return false;
        };
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        // When it began: that it has ended is another fault.
        let then = self.not_before.as_second().try_into().unwrap_or_default();
        let then = UnixTime::since_unix_epoch(Duration::from_secs(then));
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, then, algorithms.all)
            .is_ok()
    }

    /// Whether it is a server's of this name: a DNS name or an IP address.
    pub(crate) fn names(&self, name: &str) -> bool {
        let (Ok(name), Ok(parsed)) = (
            ServerName::try_from(name),
            ParsedCertificate::try_from(&self.der),
        ) else {
            return false;
        };
        verify_server_name(&parsed, &name).is_ok()
    }
}

/// A text with all of these, as `ca.crt` and `caBundle` have it.
#[must_use]
pub fn bundle_of<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> String {
    certificates.into_iter().map(Certificate::pem).collect()
}
