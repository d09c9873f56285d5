//! Creates CAs and leaves.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};

use crate::certificate::{Certificate, Unreadable};
use crate::time::{after, before};

/// How certificates are issued and when they are replaced (CERT-1, CERT-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The webhook's names: DNS names and IP addresses.
    pub names: Vec<String>,
    /// Lifetime of a CA.
    pub ca_lifetime: Duration,
    /// Lifetime of a leaf.
    pub leaf_lifetime: Duration,
    /// How far the validity is backdated, because clocks differ.
    pub backdate: Duration,
    /// Time for API servers to read a changed `caBundle`.
    pub propagation_delay: Duration,
}

const DAY: Duration = Duration::from_hours(24);

impl Settings {
    /// The defaults, for a webhook with these names.
    #[must_use]
    pub fn with_defaults(names: Vec<String>) -> Self {
        Self {
            names,
            ca_lifetime: 365 * DAY,
            leaf_lifetime: 30 * DAY,
            backdate: Duration::from_mins(10),
            propagation_delay: Duration::from_secs(30),
        }
    }
}

/// Why a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is invalid in a certificate.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
    /// Signing failed.
    #[error("cannot create a certificate: {0}")]
    Signing(#[from] rcgen::Error),
    /// The created certificate cannot be parsed.
    #[error("cannot create a certificate: {0}")]
    Unreadable(#[from] Unreadable),
}

/// A CA certificate with its private key.
pub struct Ca {
    /// The CA certificate.
    pub certificate: Certificate,
    key: KeyPair,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// A newly issued leaf with its private key.
pub struct Issued {
    /// The leaf certificate.
    pub certificate: Certificate,
    /// Its private key in PEM form.
    pub key: String,
}

impl Ca {
    /// Creates a self-signed CA.
    ///
    /// # Errors
    /// If generating the key or signing fails.
    pub fn new(settings: &Settings, now: Timestamp) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        // The timestamp makes the subjects of concurrently created CAs differ.
        let name = format!("asya-webhook-ca {now}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let expiry = after(now, settings.ca_lifetime);
        set_validity(&mut params, before(now, settings.backdate), expiry);
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate: Certificate::from_der(certificate.der().clone())?,
            key,
        })
    }

    /// Restores a stored CA from its key and the matching one of `certificates`; `None` if none matches.
    ///
    /// # Errors
    /// If the key cannot be parsed.
    pub(crate) fn from_stored(
        key: &[u8],
        certificates: &[Certificate],
    ) -> Result<Option<Self>, Unreadable> {
        let key = std::str::from_utf8(key).map_err(|_| Unreadable)?;
        let key = KeyPair::from_pem(key).map_err(|_| Unreadable)?;
        let public_key = key.subject_public_key_info();
        let mut certificates = certificates.iter();
        let certificate = certificates.find(|certificate| {
            certificate
                .public_key()
                .is_some_and(|other| *other == *public_key)
        });
        Ok(certificate.map(|certificate| Self {
            certificate: certificate.clone(),
            key,
        }))
    }

    /// Returns the private key in PEM form.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Returns when a leaf signed now would expire: never after the CA itself.
    #[must_use]
    pub fn leaf_expiry(&self, settings: &Settings, now: Timestamp) -> Timestamp {
        after(now, settings.leaf_lifetime).min(self.certificate.not_after)
    }

    /// Issues a leaf with a new key.
    ///
    /// # Errors
    /// If a name is invalid or signing fails.
    pub fn issue(&self, settings: &Settings, now: Timestamp) -> Result<Issued, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "asya-webhook");
        let names = settings.names.iter().map(|name| alternative_name(name));
        params.subject_alt_names = names.collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let expiry = self.leaf_expiry(settings, now);
        set_validity(&mut params, before(now, settings.backdate), expiry);
        let issuer = Issuer::from_ca_cert_der(self.certificate.der(), &self.key)?;
        let signed = params.signed_by(&key, &issuer)?;
        let certificate = Certificate::from_der(signed.der().clone())?;
        // A leaf that does not cover its names would be replaced repeatedly.
        if let Some(name) = settings
            .names
            .iter()
            .find(|name| !certificate.covers_name(name))
        {
            return Err(Error::Name(name.clone()));
        }
        Ok(Issued {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn alternative_name(name: &str) -> Result<SanType, Error> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let invalid = || Error::Name(name.to_owned());
    let dns_name = rustls::pki_types::DnsName::try_from(name).map_err(|_| invalid())?;
    let text = Ia5String::try_from(dns_name.as_ref()).map_err(|_| invalid())?;
    Ok(SanType::DnsName(text))
}

/// Sets the validity period, converted to rcgen's date type in whole seconds.
fn set_validity(params: &mut CertificateParams, not_before: Timestamp, not_after: Timestamp) {
    let date = |at: Timestamp| {
        let seconds = u64::try_from(at.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (date(not_before), date(not_after));
}
