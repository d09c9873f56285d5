//! What is to be done about the Secret: a pure function of its content, of what the API servers have been told, and of
//! the time. The rotation's state is in the Secret, so whoever leads goes on where the last one stopped (CERT-4).

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

/// More authorities than this are never trusted at a time, however often something breaks.
pub(crate) const MOST_AUTHORITIES: usize = 4;

/// Why a certificate is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Two thirds of its life are over.
    Due,
    /// It is of no use.
    Fault(Fault),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Due => f.write_str("two thirds of its life are over"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

/// The next change of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// None: all is as it should be.
    Keep,
    /// A new authority with a first leaf: nothing that is there can be served, or sign.
    Mint(Fault),
    /// A new leaf of the same authority.
    Renew(Why),
    /// CERT-4 (1): the next authority comes into the Secret.
    Prepare(Why),
    /// CERT-4 (2): clients are to trust the next authority, too.
    Widen,
    /// CERT-4 (3): until every API server trusts it.
    Await,
    /// CERT-4 (4): the next authority signs from now on, and a leaf of its own at once.
    Switch,
    /// CERT-4 (5): authorities that signed nothing in use, and what cannot be used, go.
    Retire,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("nothing to do"),
            Self::Mint(fault) => write!(f, "new CA and certificate: {fault}"),
            Self::Renew(why) => write!(f, "new certificate: {why}"),
            Self::Prepare(why) => write!(f, "next CA made: {why}"),
            Self::Widen => f.write_str("next CA is to be trusted"),
            Self::Await => f.write_str("waiting until every API server trusts the next CA"),
            Self::Switch => f.write_str("certificate of the next CA, which signs from now on"),
            Self::Retire => f.write_str("CAs that are not used any more are not trusted any more"),
        }
    }
}

/// Decides the next step. `trusted_for` is how long every `caBundle` has held all authorities of the Secret; none if one
/// does not.
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
        // Those who trust it already need no new one.
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

/// The authorities of the Secret that are still needed (CERT-4 (5)): that of the leaf, the signer, and for one leaf's
/// lifetime those whose leaves replicas may still serve.
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

/// An authority that can sign something now; else why it cannot.
fn usable<'a>(
    authority: &'a Result<Authority, Fault>,
    place: &'static str,
    now: Timestamp,
) -> Result<&'a Authority, Fault> {
    let authority = authority.as_ref().map_err(Clone::clone)?;
    is_current(&authority.certificate, place, now)?;
    Ok(authority)
}

/// When a certificate was made. It begins earlier.
fn made(certificate: &Certificate, settings: &Settings) -> Timestamp {
    after(certificate.not_before, settings.backdate).min(certificate.not_after)
}

/// CERT-1: two thirds of its life are over.
fn is_due(certificate: &Certificate, settings: &Settings, now: Timestamp) -> bool {
    let third = between(made(certificate, settings), certificate.not_after) / 3;
    before(certificate.not_after, third) <= now
}
