//! Selects the leaf to serve: the newest that clients accept, or else the last one that they accepted.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::Fingerprint;
use crate::parsed_secret::{Leaf, SecretFault};
use crate::time::between;

/// A leaf this close to its expiry is replaced even if the CA of the next one might not be trusted yet (CERT-7).
const LAST_RESORT: Duration = Duration::from_hours(1);

/// The CAs that the API servers trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trusted {
    /// Not known yet.
    #[default]
    Unknown,
    /// Any CA, because trust is managed elsewhere.
    All,
    /// The CAs of the applied bundle.
    These(BTreeSet<Fingerprint>),
}

impl Trusted {
    /// Parses the fingerprints in the facts `ConfigMap`, in hexadecimal digits. Without a valid one, the result is
    /// [`Trusted::Unknown`].
    #[must_use]
    pub fn read<'a>(fingerprints: impl IntoIterator<Item = &'a str>) -> Self {
        let parsed = fingerprints
            .into_iter()
            .filter_map(|text| text.parse().ok());
        let parsed: BTreeSet<Fingerprint> = parsed.collect();
        if parsed.is_empty() {
            Self::Unknown
        } else {
            Self::These(parsed)
        }
    }

    fn contains(&self, leaf: &Leaf) -> bool {
        let issuer = leaf.issuer.as_ref();
        match self {
            Self::Unknown => false,
            Self::All => true,
            Self::These(trusted) => {
                issuer.is_some_and(|issuer| trusted.contains(&issuer.fingerprint))
            }
        }
    }
}

/// Why clients would not accept the served leaf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The Secret has not been read yet.
    #[error("the Secret with the webhook's certificate has not been read yet{0}")]
    NotRead(String),
    /// The Secret has no usable leaf, and there is no earlier one to serve.
    #[error("no certificate to serve: {0}")]
    NoCertificate(SecretFault),
    /// The served leaf is not, or no longer, valid.
    #[error("the served certificate is invalid: {0}")]
    Invalid(SecretFault),
    /// The CAs that clients trust are not known.
    #[error("the CAs that the webhook configurations trust are not known yet")]
    TrustUnknown,
    /// The webhook configurations do not trust the CA of the served leaf.
    #[error(
        "the caBundle of the webhook configurations does not contain the CA of the served certificate yet"
    )]
    Untrusted,
}

/// Values for the metrics (CERT-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateMetrics {
    /// When the served leaf expires.
    pub leaf_expires: Option<Timestamp>,
    /// When its CA expires.
    pub ca_expires: Option<Timestamp>,
    /// How often the served leaf changed, including the first one.
    pub swapped: u64,
    /// How often the Secret held an unusable leaf.
    pub refused: u64,
}

/// The leaf in the Secret, and the one that is served.
#[derive(Debug, Default)]
pub(super) struct LeafSelector {
    /// The leaf in the Secret; `None` before the Secret was read.
    candidate: Option<Result<Leaf, SecretFault>>,
    served: Option<Leaf>,
    trusted: Trusted,
    /// Whether all configurations have trusted the CA of the served leaf. If one of them loses it later, only that one
    /// is affected, so the replica stays ready for the others.
    was_trusted: bool,
    /// Why the Secret could not be read.
    read_error: String,
    /// The fault of the candidate, if any.
    problem: Option<SecretFault>,
    swapped: u64,
    refused: u64,
}

impl LeafSelector {
    pub(super) fn set_candidate(&mut self, leaf: Result<Leaf, SecretFault>) {
        self.candidate = Some(leaf);
    }

    pub(super) fn trust(&mut self, trusted: Trusted) {
        self.trusted = trusted;
    }

    pub(super) fn record_read_error(&mut self, reason: &str) {
        reason.clone_into(&mut self.read_error);
    }

    pub(super) fn problem(&self) -> Option<&SecretFault> {
        self.problem.as_ref()
    }

    /// Re-evaluates the selection; returns the leaf to serve if it changes.
    pub(super) fn reevaluate(&mut self, names: &[String], now: Timestamp) -> Option<Leaf> {
        let candidate = match self.candidate.as_ref()? {
            Err(fault) => return self.refuse(fault.clone()),
            Ok(leaf) => leaf,
        };
        if self.served.as_ref() == Some(candidate) {
            self.problem = None;
            self.note_trust();
            return None;
        }
        let fault = candidate.verify(names, now).err();
        let switches = match &self.served {
            // Serving nothing is worse: the local clock may be wrong.
            None => true,
            Some(served) => fault.is_none() && self.may_follow(candidate, served, names, now),
        };
        let next = switches.then(|| candidate.clone());
        match fault {
            Some(fault) => drop(self.refuse(fault)),
            None => self.problem = None,
        }
        if next.is_some() {
            self.served.clone_from(&next);
            self.swapped += 1;
            self.was_trusted = false;
        }
        self.note_trust();
        next
    }

    /// A leaf from another CA waits until that CA is trusted, unless the current leaf is unusable or about to expire
    /// (CERT-7).
    fn may_follow(
        &self,
        candidate: &Leaf,
        served: &Leaf,
        names: &[String],
        now: Timestamp,
    ) -> bool {
        candidate.issuer == served.issuer
            || self.trusted.contains(candidate)
            || served.verify(names, now).is_err()
            || between(now, served.certificate.not_after) < LAST_RESORT
    }

    fn note_trust(&mut self) {
        let served = self.served.as_ref();
        self.was_trusted |= served.is_some_and(|served| self.trusted.contains(served));
    }

    fn refuse(&mut self, fault: SecretFault) -> Option<Leaf> {
        if self.problem.as_ref() != Some(&fault) {
            self.refused += 1;
            self.problem = Some(fault);
        }
        None
    }

    pub(super) fn ready(&self, names: &[String], now: Timestamp) -> Result<(), NotReady> {
        let Some(served) = &self.served else {
            let reason = Some(&self.read_error).filter(|reason| !reason.is_empty());
            let reason = reason.map(|reason| format!(": {reason}"));
            return Err(match &self.problem {
                Some(fault) => NotReady::NoCertificate(fault.clone()),
                None => NotReady::NotRead(reason.unwrap_or_default()),
            });
        };
        served.verify(names, now).map_err(NotReady::Invalid)?;
        match &self.trusted {
            _ if self.was_trusted => Ok(()),
            Trusted::Unknown => Err(NotReady::TrustUnknown),
            trusted if trusted.contains(served) => Ok(()),
            _ => Err(NotReady::Untrusted),
        }
    }

    pub(super) fn metrics(&self) -> CertificateMetrics {
        let leaf = self.served.as_ref();
        let ca = leaf.and_then(|leaf| leaf.issuer.as_ref());
        CertificateMetrics {
            leaf_expires: leaf.map(|leaf| leaf.certificate.not_after),
            ca_expires: ca.map(|ca| ca.not_after),
            swapped: self.swapped,
            refused: self.refused,
        }
    }
}
