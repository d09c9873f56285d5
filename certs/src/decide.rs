//! Decides the next step for the Secret: a pure function of its content, of how long all configurations have had its
//! CAs, and of the time. The state of a rotation is in the Secret, so a new leader continues where the previous one
//! stopped (CERT-4).

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::Certificate;
use crate::data::{CA_BUNDLE, NEXT_CA};
use crate::issuer::{Ca, Settings};
use crate::parsed_secret::{ParsedSecret, SecretFault, check_validity};
use crate::time::{after, before, between};

/// Maximum number of CAs trusted at a time.
pub(crate) const MAX_TRUSTED_CAS: usize = 4;

/// Why a certificate is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewalReason {
    /// Two thirds of its lifetime have passed.
    Due,
    /// The certificate is unusable.
    Fault(SecretFault),
}

impl fmt::Display for RenewalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Due => f.write_str("two thirds of its lifetime have passed"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

/// The next change to the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do.
    Keep,
    /// Create a new CA and leaf: no stored leaf can be served and no stored CA can sign.
    Create(SecretFault),
    /// Issue a new leaf from the same CA.
    Renew(RenewalReason),
    /// Store the next CA in the Secret (CERT-4 (1)).
    Prepare(RenewalReason),
    /// Have clients trust the next CA as well (CERT-4 (2)).
    TrustNext,
    /// Wait until every API server trusts the next CA (CERT-4 (3)).
    Await,
    /// Make the next CA the current one and immediately issue a leaf from it (CERT-4 (4)).
    Switch,
    /// Remove CAs whose leaves are no longer in use, and an unusable next CA (CERT-4 (5)).
    RemoveOldCas,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("nothing to do"),
            Self::Create(fault) => write!(f, "new CA and certificate: {fault}"),
            Self::Renew(reason) => write!(f, "new certificate: {reason}"),
            Self::Prepare(reason) => write!(f, "next CA created: {reason}"),
            Self::TrustNext => f.write_str("next CA added to the bundle"),
            Self::Await => f.write_str("waiting until every API server trusts the next CA"),
            Self::Switch => {
                f.write_str("certificate issued by the next CA, which is now the current one")
            }
            Self::RemoveOldCas => {
                f.write_str("CAs that are no longer used removed from the bundle")
            }
        }
    }
}

/// Decides the next step; the caller may delay a [`Step::Switch`] until it knows that the API server reaches the
/// webhook. A next CA takes precedence over a renewal of the leaf, except while it awaits trust. `trusted_for` is how
/// long every `caBundle` has held all CAs of the Secret; `None` if one does not.
#[must_use]
pub fn decide(
    secret: &ParsedSecret,
    trusted_for: Option<Duration>,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let current_ca = usable(&secret.current_ca, CA_BUNDLE, now);
    let next = secret.next.as_ref().map(|next| usable(next, NEXT_CA, now));
    let leaf = match secret.leaf.as_ref() {
        Ok(leaf) => leaf.verify(&settings.names, now).map(|_| &leaf.certificate),
        Err(fault) => Err(fault.clone()),
    };
    let leaf = match (leaf, &current_ca, &next) {
        (Ok(leaf), _, _) => leaf,
        (Err(fault), Ok(_), _) => return Step::Renew(RenewalReason::Fault(fault)),
        // Clients that trust the next CA need no new one.
        (Err(_), Err(_), Some(Ok(_))) => return Step::Switch,
        (Err(fault), Err(_), _) => return Step::Create(fault),
    };
    let leaf_is_due = current_ca.as_ref().is_ok_and(|ca| {
        is_due(leaf, settings, now) && ca.leaf_expiry(settings, now) > leaf.not_after
    });
    let ca_renewal = match &current_ca {
        Err(fault) => Some(RenewalReason::Fault(fault.clone())),
        Ok(ca) => is_due(&ca.certificate, settings, now).then_some(RenewalReason::Due),
    };
    match (next, ca_renewal) {
        (Some(Ok(next)), _) if !secret.cas.contains(&next.certificate) => Step::TrustNext,
        (Some(Ok(_)), _) if trusted_for >= Some(settings.propagation_delay) => Step::Switch,
        _ if leaf_is_due => Step::Renew(RenewalReason::Due),
        (Some(Ok(_)), _) => Step::Await,
        (_, Some(reason)) => Step::Prepare(reason),
        (Some(Err(_)), None) => Step::RemoveOldCas,
        (None, None) if needed_cas(secret, settings, now).len() < secret.cas.len() => {
            Step::RemoveOldCas
        }
        (None, None) => Step::Keep,
    }
}

/// Returns the CAs of the Secret that are still needed: the issuer of the leaf, the current CA and, for one leaf
/// lifetime, those whose leaves replicas may still serve (CERT-4 (5)).
pub(crate) fn needed_cas<'a>(
    secret: &'a ParsedSecret,
    settings: &Settings,
    now: Timestamp,
) -> Vec<&'a Certificate> {
    let current_ca = secret.current_ca.as_ref().ok().map(|ca| &ca.certificate);
    let issuer = secret
        .leaf
        .as_ref()
        .ok()
        .and_then(|leaf| leaf.issuer.as_ref());
    let since = secret.since.filter(|since| *since <= now);
    let since = since.or(current_ca.map(|ca| issued_at(ca, settings)));
    let all_needed = since.is_some_and(|since| now < after(since, settings.leaf_lifetime));
    let is_needed = |certificate: &&Certificate| {
        let in_use = [current_ca, issuer].contains(&Some(*certificate));
        in_use || (all_needed && now < certificate.not_after)
    };
    secret.cas.iter().filter(is_needed).collect()
}

/// Returns the CA if it can sign now, otherwise the fault.
fn usable<'a>(
    ca: &'a Result<Ca, SecretFault>,
    data_key: &'static str,
    now: Timestamp,
) -> Result<&'a Ca, SecretFault> {
    let ca = ca.as_ref().map_err(Clone::clone)?;
    check_validity(&ca.certificate, data_key, now)?;
    Ok(ca)
}

/// When a certificate was issued. Its validity is backdated.
fn issued_at(certificate: &Certificate, settings: &Settings) -> Timestamp {
    after(certificate.not_before, settings.backdate).min(certificate.not_after)
}

/// Whether two thirds of the certificate's lifetime have passed (CERT-1).
fn is_due(certificate: &Certificate, settings: &Settings, now: Timestamp) -> bool {
    let third = between(issued_at(certificate, settings), certificate.not_after) / 3;
    before(certificate.not_after, third) <= now
}
