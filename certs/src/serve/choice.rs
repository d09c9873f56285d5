//! Chooses the leaf to serve: the newest that clients accept, or else the last one that they accepted.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::bundle::{Fault, Leaf};
use crate::certificate::Fingerprint;
use crate::time::between;

/// A leaf this close to its expiry yields to one whose CA may not be trusted yet (CERT-7).
const LAST_RESORT: Duration = Duration::from_hours(1);

/// The CAs that the API servers trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trusted {
    /// Not known yet.
    #[default]
    Unknown,
    /// Any CA: another party manages trust.
    All,
    /// The CAs of the applied bundle.
    These(BTreeSet<Fingerprint>),
}

impl Trusted {
    /// Parses the fingerprints in the facts `ConfigMap`, written in hexadecimal digits. Without a valid one the result
    /// is [`Trusted::Unknown`].
    #[must_use]
    pub fn read<'a>(fingerprints: impl IntoIterator<Item = &'a str>) -> Self {
        let read = fingerprints
            .into_iter()
            .filter_map(|text| text.parse().ok());
        let these: BTreeSet<Fingerprint> = read.collect();
        if these.is_empty() {
            Self::Unknown
        } else {
            Self::These(these)
        }
    }

    fn contains(&self, leaf: &Leaf) -> bool {
        let issuer = leaf.issuer.as_ref();
        match self {
            Self::Unknown => false,
            Self::All => true,
            Self::These(these) => issuer.is_some_and(|it| these.contains(&it.fingerprint)),
        }
    }
}

/// Why clients would not accept what is served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The Secret has not been read yet.
    #[error("the Secret with the webhook's certificate has not been read yet{0}")]
    Unread(String),
    /// The Secret has no usable leaf, and there is no earlier one to serve.
    #[error("no certificate to serve: {0}")]
    Nothing(Fault),
    /// The served leaf is not, or no longer, valid.
    #[error("the served certificate is invalid: {0}")]
    Bad(Fault),
    /// It is not known which CAs clients trust.
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
pub struct Shown {
    /// When the served leaf expires.
    pub leaf_ends: Option<Timestamp>,
    /// When its CA expires.
    pub authority_ends: Option<Timestamp>,
    /// How often the served leaf changed; the first one counts.
    pub swapped: u64,
    /// How often the Secret held an unusable leaf.
    pub refused: u64,
}

/// The leaf in the Secret, and the one that is served.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// The leaf in the Secret; `None` before the Secret was read.
    offered: Option<Result<Leaf, Fault>>,
    served: Option<Leaf>,
    trusted: Trusted,
    /// Whether the CA of the served leaf has been trusted by all configurations. If one of them loses it later, only
    /// that one is affected: the replica stays ready for the others.
    was_trusted: bool,
    /// Why the Secret could not be read.
    unread: String,
    /// The fault of the offered leaf, if any.
    problem: Option<Fault>,
    swapped: u64,
    refused: u64,
}

impl Choice {
    pub(super) fn offer(&mut self, leaf: Result<Leaf, Fault>) {
        self.offered = Some(leaf);
    }

    pub(super) fn trust(&mut self, trusted: Trusted) {
        self.trusted = trusted;
    }

    pub(super) fn unread(&mut self, reason: &str) {
        reason.clone_into(&mut self.unread);
    }

    pub(super) fn problem(&self) -> Option<&Fault> {
        self.problem.as_ref()
    }

    /// Re-evaluates the choice; returns the leaf to serve if it changes.
    pub(super) fn settle(&mut self, names: &[String], now: Timestamp) -> Option<Leaf> {
        let offered = match self.offered.as_ref()? {
            Err(fault) => return self.refuse(fault.clone()),
            Ok(leaf) => leaf,
        };
        if self.served.as_ref() == Some(offered) {
            self.problem = None;
            self.note_trust();
            return None;
        }
        let fault = offered.judge(names, now).err();
        let takes = match &self.served {
            // Serving nothing is worse: the clock that judges the leaf may be wrong.
            None => true,
            Some(served) => fault.is_none() && self.may_follow(offered, served, names, now),
        };
        let next = takes.then(|| offered.clone());
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
    fn may_follow(&self, next: &Leaf, served: &Leaf, names: &[String], now: Timestamp) -> bool {
        next.issuer == served.issuer
            || self.trusted.contains(next)
            || served.judge(names, now).is_err()
            || between(now, served.certificate.not_after) < LAST_RESORT
    }

    fn note_trust(&mut self) {
        let served = self.served.as_ref();
        self.was_trusted |= served.is_some_and(|served| self.trusted.contains(served));
    }

    fn refuse(&mut self, fault: Fault) -> Option<Leaf> {
        if self.problem.as_ref() != Some(&fault) {
            self.refused += 1;
            self.problem = Some(fault);
        }
        None
    }

    pub(super) fn ready(&self, names: &[String], now: Timestamp) -> Result<(), NotReady> {
        let Some(served) = &self.served else {
            let reason = Some(&self.unread).filter(|reason| !reason.is_empty());
            let reason = reason.map(|reason| format!(": {reason}"));
            return Err(match &self.problem {
                Some(fault) => NotReady::Nothing(fault.clone()),
                None => NotReady::Unread(reason.unwrap_or_default()),
            });
        };
        served.judge(names, now).map_err(NotReady::Bad)?;
        match &self.trusted {
            _ if self.was_trusted => Ok(()),
            Trusted::Unknown => Err(NotReady::TrustUnknown),
            trusted if trusted.contains(served) => Ok(()),
            _ => Err(NotReady::Untrusted),
        }
    }

    pub(super) fn shown(&self) -> Shown {
        let leaf = self.served.as_ref();
        let authority = leaf.and_then(|leaf| leaf.issuer.as_ref());
        Shown {
            leaf_ends: leaf.map(|leaf| leaf.certificate.not_after),
            authority_ends: authority.map(|authority| authority.not_after),
            swapped: self.swapped,
            refused: self.refused,
        }
    }
}
