//! The CAs that clients should trust, as written to every `caBundle` of the webhook configurations.

use std::sync::Arc;

use jiff::Timestamp;

use crate::certificate::{Certificate, Fingerprint, bundle_of};
use crate::decide::MOST_AUTHORITIES;

/// CA certificates, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaBundle(Arc<[Certificate]>);

impl CaBundle {
    /// Parses a `caBundle` or `ca.crt`; anything that is not a certificate is skipped.
    #[must_use]
    pub fn read(pem: &[u8]) -> Self {
        Self(Certificate::all_in(pem).into())
    }

    /// The CA certificates.
    #[must_use]
    pub fn authorities(&self) -> &[Certificate] {
        &self.0
    }

    /// Encodes the bundle in PEM form, for `caBundle`.
    #[must_use]
    pub fn pem(&self) -> String {
        bundle_of(&*self.0)
    }

    /// Fingerprints, by which the webhook's replicas identify its CAs (CERT-7).
    pub fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.0.iter().map(|authority| authority.fingerprint)
    }

    /// Merges this bundle with the unexpired certificates of `present`, which come first. If there are too many, the
    /// oldest of `present` are dropped (CERT-7).
    #[must_use]
    pub fn beside<'a>(
        &self,
        present: impl IntoIterator<Item = &'a Certificate>,
        now: Timestamp,
    ) -> Self {
        let mut others: Vec<&Certificate> = Vec::new();
        for it in present {
            if now < it.not_after && !self.0.contains(it) && !others.contains(&it) {
                others.push(it);
            }
        }
        others.sort_by_key(|it| it.not_before);
        let surplus = (others.len() + self.0.len()).saturating_sub(MOST_AUTHORITIES);
        let others = others.into_iter().skip(surplus);
        Self(others.chain(&*self.0).cloned().collect())
    }
}

impl FromIterator<Certificate> for CaBundle {
    fn from_iter<I: IntoIterator<Item = Certificate>>(authorities: I) -> Self {
        Self(authorities.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::CaBundle;
    use crate::testing::{DAY, ago, authority, now};

    /// CERT-7
    #[test]
    fn trusted_cas_are_kept_until_they_expire() {
        let of = |age| authority(ago(age * DAY)).certificate;
        let (expired, old, new) = (of(366), of(300), of(0));
        let ours: CaBundle = [new.clone()].into_iter().collect();
        let present = [expired, new.clone(), old.clone(), old.clone()];
        let both = ours.beside(&present, now());
        assert_eq!(both.authorities(), [old, new]);
        assert_eq!(CaBundle::read(both.pem().as_bytes()), both);
        assert_eq!(
            ours.beside(both.authorities(), now()),
            both,
            "again the same"
        );

        let many: Vec<_> = (1..9).map(of).collect();
        let four = ours.beside(&many, now());
        assert_eq!(
            four.authorities()[..3],
            [&many[2], &many[1], &many[0]].map(Clone::clone)
        );
        assert_eq!(four.authorities().len(), 4);
    }
}
