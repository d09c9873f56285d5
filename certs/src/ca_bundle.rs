//! The CAs that clients should trust, as written to every `caBundle` of the webhook configurations.

use std::sync::Arc;

use jiff::Timestamp;

use crate::certificate::{Certificate, Fingerprint, to_pem_bundle};
use crate::decide::MAX_TRUSTED_CAS;

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
    pub fn certificates(&self) -> &[Certificate] {
        &self.0
    }

    /// Encodes the bundle in PEM form, for `caBundle`.
    #[must_use]
    pub fn pem(&self) -> String {
        to_pem_bundle(&*self.0)
    }

    /// Fingerprints, by which the webhook's replicas identify the CAs (CERT-7).
    pub fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.0.iter().map(|ca| ca.fingerprint)
    }

    /// Merges this bundle with the unexpired certificates of `trusted`, which come first. If there are too many, the
    /// oldest of `trusted` are dropped (CERT-7).
    #[must_use]
    pub fn merged_with<'a>(
        &self,
        trusted: impl IntoIterator<Item = &'a Certificate>,
        now: Timestamp,
    ) -> Self {
        let mut others: Vec<&Certificate> = Vec::new();
        for certificate in trusted {
            if now < certificate.not_after
                && !self.0.contains(certificate)
                && !others.contains(&certificate)
            {
                others.push(certificate);
            }
        }
        others.sort_by_key(|certificate| certificate.not_before);
        let excess = (others.len() + self.0.len()).saturating_sub(MAX_TRUSTED_CAS);
        let others = others.into_iter().skip(excess);
        Self(others.chain(&*self.0).cloned().collect())
    }
}

impl FromIterator<Certificate> for CaBundle {
    fn from_iter<I: IntoIterator<Item = Certificate>>(cas: I) -> Self {
        Self(cas.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::CaBundle;
    use crate::testing::{DAY, ago, new_ca, now};

    /// CERT-7
    #[test]
    fn trusted_cas_are_kept_until_they_expire() {
        let certificate = |age| new_ca(ago(age * DAY)).certificate;
        let (expired, old, new) = (certificate(366), certificate(300), certificate(0));
        let bundle: CaBundle = [new.clone()].into_iter().collect();
        let trusted = [expired, new.clone(), old.clone(), old.clone()];
        let both = bundle.merged_with(&trusted, now());
        assert_eq!(both.certificates(), [old, new]);
        assert_eq!(CaBundle::read(both.pem().as_bytes()), both);
        assert_eq!(
            bundle.merged_with(both.certificates(), now()),
            both,
            "merging again changes nothing"
        );

        let many: Vec<_> = (1..9).map(certificate).collect();
        let four = bundle.merged_with(&many, now());
        assert_eq!(
            four.certificates()[..3],
            [&many[2], &many[1], &many[0]].map(Clone::clone)
        );
        assert_eq!(four.certificates().len(), 4);
    }
}
