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
use crate::data::{AUTHORITIES, AUTHORITY_KEY, Data, LEAF, LEAF_KEY, NEXT, NEXT_KEY};
use crate::mint::Authority;

/// Why a part of the Secret is unusable (CERT-5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
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
    /// The certificate is not a CA certificate.
    #[error("{0} is not a CA certificate")]
    NoAuthority(&'static str),
    /// No CA in the bundle signed the leaf.
    #[error("tls.crt is not signed by any CA in ca.crt")]
    Untrusted,
    /// The leaf does not cover one of the webhook's names.
    #[error("tls.crt does not name {0}")]
    Name(String),
    /// Not valid yet: a clock was set back.
    #[error("{0} is not valid yet")]
    NotYetValid(&'static str),
    /// No longer valid.
    #[error("{0} has expired")]
    Expired(&'static str),
}

/// The parsed Secret, with every check that does not depend on the time.
#[derive(Debug)]
pub struct Bundle {
    /// The CAs that clients should trust.
    pub authorities: Vec<Certificate>,
    /// The CA that signs leaves; one of `authorities`.
    pub signer: Result<Authority, Fault>,
    /// The CA that will sign next, if one has been prepared.
    pub next: Option<Result<Authority, Fault>>,
    /// The webhook's serving certificate.
    pub leaf: Result<Leaf, Fault>,
    /// Since when the leaf has been signed by the current signer.
    pub since: Option<Timestamp>,
}

impl Bundle {
    /// Parses the Secret's data and its annotation [`asya_shared::names::annotation::AUTHORITY_SINCE`].
    #[must_use]
    pub fn read(data: &Data, since: Option<&str>) -> Self {
        let authorities = data
            .get(AUTHORITIES)
            .map(Certificate::all_in)
            .unwrap_or_default();
        let next = data.get(NEXT).or(data.get(NEXT_KEY)).map(|_| {
            let own = data.get(NEXT).ok_or(Fault::Missing(NEXT))?;
            authority(data, NEXT_KEY, NEXT, &Certificate::all_in(own))
        });
        Self {
            signer: authority(data, AUTHORITY_KEY, AUTHORITIES, &authorities),
            next,
            leaf: Leaf::read(data),
            since: since.and_then(|text| text.parse().ok()),
            authorities,
        }
    }
}

fn authority(
    data: &Data,
    key: &'static str,
    certificate: &'static str,
    among: &[Certificate],
) -> Result<Authority, Fault> {
    let text = data.get(key).ok_or(Fault::Missing(key))?;
    let found = Authority::stored(text, among).map_err(|_| Fault::Unreadable(key))?;
    match found {
        Some(found) if !found.certificate.is_authority => Err(Fault::NoAuthority(certificate)),
        Some(found) => Ok(found),
        None if data.get(certificate).is_none() => Err(Fault::Missing(certificate)),
        None if among.is_empty() => Err(Fault::Unreadable(certificate)),
        None => Err(Fault::Mismatch { key, certificate }),
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
    /// When it is missing or unreadable, or its private key does not match.
    pub fn read(data: &Data) -> Result<Self, Fault> {
        let text = data.get(LEAF).ok_or(Fault::Missing(LEAF))?;
        let key = data.get(LEAF_KEY).ok_or(Fault::Missing(LEAF_KEY))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let chain = chain.map_err(|_| Fault::Unreadable(LEAF))?;
        let first = chain.first().cloned().ok_or(Fault::Unreadable(LEAF))?;
        let certificate = Certificate::from_der(first).map_err(|_| Fault::Unreadable(LEAF))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Fault::Unreadable(LEAF_KEY))?;
        let key =
            aws_lc_rs::sign::any_supported_type(&key).map_err(|_| Fault::Unreadable(LEAF_KEY))?;
        let authorities = data
            .get(AUTHORITIES)
            .map(Certificate::all_in)
            .unwrap_or_default();
        let mut authorities = authorities.into_iter();
        let issuer = authorities.find(|authority| certificate.is_of(authority, &chain[1..]));
        let served = CertifiedKey::new(chain, key);
        served.keys_match().map_err(|_| Fault::Mismatch {
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
    /// Why clients would reject it.
    pub fn judge(&self, names: &[String], now: Timestamp) -> Result<&Certificate, Fault> {
        is_current(&self.certificate, LEAF, now)?;
        let issuer = self.issuer.as_ref().ok_or(Fault::Untrusted)?;
        is_current(issuer, AUTHORITIES, now)?;
        let mut names = names.iter();
        match names.find(|name| !self.certificate.names(name)) {
            Some(missing) => Err(Fault::Name(missing.clone())),
            None => Ok(issuer),
        }
    }
}

/// Checks that a certificate is within its validity period.
pub(crate) fn is_current(
    certificate: &Certificate,
    place: &'static str,
    now: Timestamp,
) -> Result<(), Fault> {
    if now < certificate.not_before {
        Err(Fault::NotYetValid(place))
    } else if now >= certificate.not_after {
        Err(Fault::Expired(place))
    } else {
        Ok(())
    }
}
