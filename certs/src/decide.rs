//! Decides the next step for the Secret: a pure function of its content, of how long the API servers have been given
//! its CAs, and of the time. The state of a rotation is in the Secret, so a new leader continues where the last one
//! stopped (CERT-4).

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::bundle::{Bundle, Fault, is_current};
use crate::certificate::Certificate;
use crate::data::{AUTHORITIES, NEXT};
use crate::mint::{Authority, Settings};
use crate::time::{after, before, between};

/// Maximum number of CAs trusted at a time, however often something breaks.
pub(crate) const MOST_AUTHORITIES: usize = 4;

/// Why a certificate is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Two thirds of its lifetime have passed.
    Due,
    /// It is unusable.
    Fault(Fault),
}

impl fmt::Display for Why {
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
    Mint(Fault),
    /// Issue a new leaf from the same CA.
    Renew(Why),
    /// Store the next CA in the Secret (CERT-4 (1)).
    Prepare(Why),
    /// Have clients trust the next CA as well (CERT-4 (2)).
    Widen,
    /// Wait until every API server trusts the next CA (CERT-4 (3)).
    Await,
    /// Make the next CA the signer and issue a leaf from it at once (CERT-4 (4)).
    Switch,
    /// Remove CAs that signed nothing in use, and an unusable next CA (CERT-4 (5)).
    Retire,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("nothing to do"),
            Self::Mint(fault) => write!(f, "new CA and certificate: {fault}"),
            Self::Renew(why) => write!(f, "new certificate: {why}"),
            Self::Prepare(why) => write!(f, "next CA created: {why}"),
            Self::Widen => f.write_str("next CA added to the bundle"),
            Self::Await => f.write_str("waiting until every API server trusts the next CA"),
            Self::Switch => {
                f.write_str("certificate issued by the next CA, which is now the current one")
            }
            Self::Retire => f.write_str("CAs that are no longer used removed from the bundle"),
        }
    }
}

/// Decides the next step. `trusted_for` is how long every `caBundle` has held all CAs of the Secret; `None` if one does
/// not.
#[must_use]
pub fn decide(
    bundle: &Bundle,
    trusted_for: Option<Duration>,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let signer = usable(&bundle.signer, AUTHORITIES, now);
    let next = bundle.next.as_ref().map(|next| usable(next, NEXT, now));
    let leaf = match bundle.leaf.as_ref() {
        Ok(leaf) => leaf.judge(&settings.names, now).map(|_| &leaf.certificate),
        Err(fault) => Err(fault.clone()),
    };
    let leaf = match (leaf, &signer, &next) {
        (Ok(leaf), _, _) => leaf,
        (Err(fault), Ok(_), _) => return Step::Renew(Why::Fault(fault)),
        // Clients that trust the next CA need no new one.
        (Err(_), Err(_), Some(Ok(_))) => return Step::Switch,
        (Err(fault), Err(_), _) => return Step::Mint(fault),
    };
    let renewal = signer.as_ref().is_ok_and(|signer| {
        is_due(leaf, settings, now) && signer.end_of_leaf(settings, now) > leaf.not_after
    });
    let why = match &signer {
        Err(fault) => Some(Why::Fault(fault.clone())),
        Ok(signer) => is_due(&signer.certificate, settings, now).then_some(Why::Due),
    };
    match (next, why) {
        (Some(Ok(next)), _) if !bundle.authorities.contains(&next.certificate) => Step::Widen,
        (Some(Ok(_)), _) if trusted_for >= Some(settings.spread) => Step::Switch,
        _ if renewal => Step::Renew(Why::Due),
        (Some(Ok(_)), _) => Step::Await,
        (_, Some(why)) => Step::Prepare(why),
        (Some(Err(_)), None) => Step::Retire,
        (None, None) if kept(bundle, settings, now).len() < bundle.authorities.len() => {
            Step::Retire
        }
        (None, None) => Step::Keep,
    }
}

/// Returns the CAs of the Secret that are still needed: the issuer of the leaf, the signer and, for one leaf lifetime,
/// those whose leaves replicas may still serve (CERT-4 (5)).
pub(crate) fn kept<'a>(
    bundle: &'a Bundle,
    settings: &Settings,
    now: Timestamp,
) -> Vec<&'a Certificate> {
    let signer = bundle.signer.as_ref().ok().map(|it| &it.certificate);
    let issuer = bundle.leaf.as_ref().ok().and_then(|it| it.issuer.as_ref());
    let since = bundle.since.filter(|since| *since <= now);
    let since = since.or(signer.map(|signer| made(signer, settings)));
    let all_needed = since.is_some_and(|since| now < after(since, settings.leaf_life));
    let is_needed = |it: &&Certificate| {
        let in_use = [signer, issuer].contains(&Some(*it));
        in_use || (all_needed && now < it.not_after)
    };
    bundle.authorities.iter().filter(is_needed).collect()
}

/// Returns the CA if it can sign now; otherwise the reason why not.
fn usable<'a>(
    authority: &'a Result<Authority, Fault>,
    place: &'static str,
    now: Timestamp,
) -> Result<&'a Authority, Fault> {
    let authority = authority.as_ref().map_err(Clone::clone)?;
    is_current(&authority.certificate, place, now)?;
    Ok(authority)
}

/// When a certificate was issued. Its validity starts earlier, by the backdating.
fn made(certificate: &Certificate, settings: &Settings) -> Timestamp {
    after(certificate.not_before, settings.backdate).min(certificate.not_after)
}

/// Whether two thirds of the certificate's lifetime have passed (CERT-1).
fn is_due(certificate: &Certificate, settings: &Settings, now: Timestamp) -> bool {
    let third = between(made(certificate, settings), certificate.not_after) / 3;
    before(certificate.not_after, third) <= now
}
