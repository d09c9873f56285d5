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
    pub authority_life: Duration,
    /// Lifetime of a leaf.
    pub leaf_life: Duration,
    /// How far a certificate's validity starts before it is issued, because clocks differ.
    pub backdate: Duration,
    /// How long API servers get to pick up a changed `caBundle`.
    pub spread: Duration,
}

const DAY: Duration = Duration::from_hours(24);

impl Settings {
    /// The defaults, for a webhook with these names.
    #[must_use]
    pub fn of(names: Vec<String>) -> Self {
        Self {
            names,
            authority_life: 365 * DAY,
            leaf_life: 30 * DAY,
            backdate: Duration::from_mins(10),
            spread: Duration::from_secs(30),
        }
    }
}

/// Why a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that a certificate cannot carry.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
    /// Signing failed.
    #[error("making a certificate: {0}")]
    Signing(#[from] rcgen::Error),
    /// The created certificate cannot be parsed.
    #[error("making a certificate: {0}")]
    Made(#[from] Unreadable),
}

/// A CA certificate with its private key.
pub struct Authority {
    /// The CA certificate.
    pub certificate: Certificate,
    key: KeyPair,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
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

impl Authority {
    /// Creates a self-signed CA.
    ///
    /// # Errors
    /// When generating the key or signing fails.
    pub fn new(settings: &Settings, now: Timestamp) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        // The timestamp gives concurrent CAs different subjects.
        let name = format!("asya-webhook-ca {now}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ends = after(now, settings.authority_life);
        set_time(&mut params, before(now, settings.backdate), ends);
        let made = params.self_signed(&key)?;
        Ok(Self {
            certificate: Certificate::from_der(made.der().clone())?,
            key,
        })
    }

    /// Restores a stored CA from its key and the matching one of `certificates`; `None` if none matches.
    ///
    /// # Errors
    /// When the key cannot be parsed.
    pub(crate) fn stored(
        key: &[u8],
        certificates: &[Certificate],
    ) -> Result<Option<Self>, Unreadable> {
        let key = std::str::from_utf8(key).map_err(|_| Unreadable)?;
        let key = KeyPair::from_pem(key).map_err(|_| Unreadable)?;
        let theirs = key.subject_public_key_info();
        let mut certificates = certificates.iter();
        let found = certificates.find(|it| it.public_key().is_some_and(|ours| *ours == *theirs));
        Ok(found.map(|certificate| Self {
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
    pub fn end_of_leaf(&self, settings: &Settings, now: Timestamp) -> Timestamp {
        after(now, settings.leaf_life).min(self.certificate.not_after)
    }

    /// Issues a leaf with a new key.
    ///
    /// # Errors
    /// When a name is invalid or signing fails.
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
        let ends = self.end_of_leaf(settings, now);
        set_time(&mut params, before(now, settings.backdate), ends);
        let issuer = Issuer::from_ca_cert_der(self.certificate.der(), &self.key)?;
        let made = params.signed_by(&key, &issuer)?;
        let certificate = Certificate::from_der(made.der().clone())?;
        // A leaf that does not cover its names would be replaced again and again.
        if let Some(name) = settings.names.iter().find(|name| !certificate.names(name)) {
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
    let wrong = || Error::Name(name.to_owned());
    let given = rustls::pki_types::DnsName::try_from(name).map_err(|_| wrong())?;
    let text = Ia5String::try_from(given.as_ref()).map_err(|_| wrong())?;
    Ok(SanType::DnsName(text))
}

/// Sets the validity period, converted to rcgen's date type in whole seconds.
fn set_time(params: &mut CertificateParams, begins: Timestamp, ends: Timestamp) {
    let moment = |at: Timestamp| {
        let seconds = u64::try_from(at.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (moment(begins), moment(ends));
}
