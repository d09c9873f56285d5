//! Parses and validates the content of the Secret.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;
use crate::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::issuer::Ca;

/// Why a part of the Secret is unusable (CERT-5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// The data key is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The value of the data key cannot be parsed.
    #[error("cannot parse {0}")]
    Unreadable(&'static str),
    /// The private key does not match the certificate.
    #[error("{key} does not match {certificate}")]
    Mismatch {
        /// Data key of the private key.
        key: &'static str,
        /// Data key of the certificate.
        certificate: &'static str,
    },
    /// The certificate is not that of a CA.
    #[error("{0} is not a CA certificate")]
    NotACa(&'static str),
    /// No CA in the bundle signed the leaf.
    #[error("tls.crt is not signed by any CA in ca.crt")]
    Untrusted,
    /// The leaf does not cover one of the webhook's names.
    #[error("tls.crt does not name {0}")]
    Name(String),
    /// Not valid yet; a clock may have been set back.
    #[error("{0} is not valid yet")]
    NotYetValid(&'static str),
    /// No longer valid.
    #[error("{0} has expired")]
    Expired(&'static str),
}

/// The parsed Secret, with the results of every check that does not depend on the time.
#[derive(Debug)]
pub struct ParsedSecret {
    /// The CAs that clients should trust.
    pub cas: Vec<Certificate>,
    /// The CA that signs leaves; one of `cas`.
    pub current_ca: Result<Ca, SecretFault>,
    /// The CA that will sign next, if one has been prepared.
    pub next: Option<Result<Ca, SecretFault>>,
    /// The webhook's serving certificate.
    pub leaf: Result<Leaf, SecretFault>,
    /// Since when the current CA has issued the leaves.
    pub since: Option<Timestamp>,
}

impl ParsedSecret {
    /// Parses the Secret's data and its annotation [`asya_shared::names::annotation::AUTHORITY_SINCE`].
    #[must_use]
    pub fn read(data: &Data, since: Option<&str>) -> Self {
        let cas = data
            .get(CA_BUNDLE)
            .map(Certificate::all_in)
            .unwrap_or_default();
        let next = data.get(NEXT_CA).or(data.get(NEXT_CA_KEY)).map(|_| {
            let certificate = data.get(NEXT_CA).ok_or(SecretFault::Missing(NEXT_CA))?;
            read_ca(
                data,
                NEXT_CA_KEY,
                NEXT_CA,
                &Certificate::all_in(certificate),
            )
        });
        Self {
            current_ca: read_ca(data, CA_KEY, CA_BUNDLE, &cas),
            next,
            leaf: Leaf::read(data),
            since: since.and_then(|text| text.parse().ok()),
            cas,
        }
    }
}

fn read_ca(
    data: &Data,
    key: &'static str,
    certificate: &'static str,
    certificates: &[Certificate],
) -> Result<Ca, SecretFault> {
    let text = data.get(key).ok_or(SecretFault::Missing(key))?;
    let ca = Ca::from_stored(text, certificates).map_err(|_| SecretFault::Unreadable(key))?;
    match ca {
        Some(ca) if !ca.certificate.is_ca => Err(SecretFault::NotACa(certificate)),
        Some(ca) => Ok(ca),
        None if data.get(certificate).is_none() => Err(SecretFault::Missing(certificate)),
        None if certificates.is_empty() => Err(SecretFault::Unreadable(certificate)),
        None => Err(SecretFault::Mismatch { key, certificate }),
    }
}

/// A serving certificate with its chain and private key.
#[derive(Clone)]
pub struct Leaf {
    /// The leaf certificate itself.
    pub certificate: Certificate,
    /// The CA in the bundle that it chains to, if any.
    pub issuer: Option<Certificate>,
    /// The certificate chain and private key in rustls' form.
    pub served: Arc<CertifiedKey>,
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("certificate", &self.certificate)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate && self.issuer == other.issuer
    }
}

impl Leaf {
    /// Parses the leaf from the Secret's data.
    ///
    /// # Errors
    /// If it is missing or unreadable, or its private key does not match.
    pub fn read(data: &Data) -> Result<Self, SecretFault> {
        let text = data.get(LEAF).ok_or(SecretFault::Missing(LEAF))?;
        let key = data.get(LEAF_KEY).ok_or(SecretFault::Missing(LEAF_KEY))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let chain = chain.map_err(|_| SecretFault::Unreadable(LEAF))?;
        let first = chain
            .first()
            .cloned()
            .ok_or(SecretFault::Unreadable(LEAF))?;
        let certificate =
            Certificate::from_der(first).map_err(|_| SecretFault::Unreadable(LEAF))?;
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|_| SecretFault::Unreadable(LEAF_KEY))?;
        let key = aws_lc_rs::sign::any_supported_type(&key)
            .map_err(|_| SecretFault::Unreadable(LEAF_KEY))?;
        let cas = data
            .get(CA_BUNDLE)
            .map(Certificate::all_in)
            .unwrap_or_default();
        let mut cas = cas.into_iter();
        let issuer = cas.find(|ca| certificate.is_issued_by(ca, &chain[1..]));
        let served = CertifiedKey::new(chain, key);
        served.keys_match().map_err(|_| SecretFault::Mismatch {
            key: LEAF_KEY,
            certificate: LEAF,
        })?;
        Ok(Self {
            certificate,
            issuer,
            served: Arc::new(served),
        })
    }

    /// Checks that clients that trust the bundle accept the leaf now for all of `names`; returns its CA.
    ///
    /// # Errors
    /// The reason why clients would reject it.
    pub fn verify(&self, names: &[String], now: Timestamp) -> Result<&Certificate, SecretFault> {
        check_validity(&self.certificate, LEAF, now)?;
        let issuer = self.issuer.as_ref().ok_or(SecretFault::Untrusted)?;
        check_validity(issuer, CA_BUNDLE, now)?;
        let mut names = names.iter();
        match names.find(|name| !self.certificate.covers_name(name)) {
            Some(missing) => Err(SecretFault::Name(missing.clone())),
            None => Ok(issuer),
        }
    }
}

/// Checks that a certificate is within its validity period.
pub(crate) fn check_validity(
    certificate: &Certificate,
    data_key: &'static str,
    now: Timestamp,
) -> Result<(), SecretFault> {
    if now < certificate.not_before {
        Err(SecretFault::NotYetValid(data_key))
    } else if now >= certificate.not_after {
        Err(SecretFault::Expired(data_key))
    } else {
        Ok(())
    }
}
