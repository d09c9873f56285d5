//! The Secret's content, read and judged.

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

/// What is wrong with a part of the Secret (CERT-5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The key is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// What the key holds is not what it should be.
    #[error("{0} cannot be read")]
    Unreadable(&'static str),
    /// A private key and a certificate do not belong together.
    #[error("{key} is not the key of {certificate}")]
    Mismatch {
        /// Where the private key is.
        key: &'static str,
        /// Where the certificate is.
        certificate: &'static str,
    },
    /// The certificate may not sign others.
    #[error("{0} is no certificate of a CA")]
    NoAuthority(&'static str),
    /// No authority of the bundle signed the leaf.
    #[error("tls.crt is signed by no CA in ca.crt")]
    Untrusted,
    /// The leaf is not the webhook's.
    #[error("tls.crt does not name {0}")]
    Name(String),
    /// It begins later: a clock was set back.
    #[error("{0} is not valid yet")]
    NotYetValid(&'static str),
    /// It has ended.
    #[error("{0} has expired")]
    Expired(&'static str),
}

/// What the Secret says, judged as far as that needs no clock.
#[derive(Debug)]
pub struct Bundle {
    /// The authorities that clients are to trust.
    pub authorities: Vec<Certificate>,
    /// The authority that signs; one of those.
    pub signer: Result<Authority, Fault>,
    /// The authority that is to sign next.
    pub next: Option<Result<Authority, Fault>>,
    /// What the webhook serves by.
    pub leaf: Result<Leaf, Fault>,
    /// Since when the leaf has been one of the signer's.
    pub since: Option<Timestamp>,
}

impl Bundle {
    /// Reads the Secret: its data, and its annotation [`asya_shared::names::annotation::AUTHORITY_SINCE`].
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

/// What a server serves by: a certificate, what leads to its authority, and its private key.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate: Certificate,
    /// The authority of the bundle that signed it.
    pub issuer: Option<Certificate>,
    /// What rustls serves.
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
    /// Reads the Secret's.
    ///
    /// # Errors
    /// When there is none, or its key is another's.
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

    /// Whether clients that trust the bundle take it now for the webhook of these names; else why not.
    ///
    /// # Errors
    /// What is wrong with it.
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

/// Whether a certificate is valid now, as far as time is concerned; else why not.
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
