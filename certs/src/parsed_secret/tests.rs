#![allow(clippy::unwrap_used)]

mod fuzz;

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::{Leaf, ParsedSecret, SecretFault};
use crate::certificate::Certificate;
use crate::data::{CA_BUNDLE, CA_KEY, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::testing::{DAY, SecretBuilder, ago, hence, names, new_ca, now, settings};

const GARBAGE: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";

/// CERT-5
#[test]
fn every_leaf_fault_is_reported() {
    let (ca, other) = (new_ca(ago(20 * DAY)), new_ca(ago(DAY)));
    let valid = || SecretBuilder::usual(&ca, ago(DAY));
    let other_secret = SecretBuilder::usual(&other, ago(DAY));
    let key = std::str::from_utf8(other_secret.0.get(LEAF_KEY).unwrap()).unwrap();
    let without_name = {
        let mut settings = settings();
        settings.names.truncate(1);
        valid().leaf(&ca, &settings, ago(DAY))
    };
    let mismatch = SecretFault::Mismatch {
        key: LEAF_KEY,
        certificate: LEAF,
    };
    let expired_ca = new_ca(ago(366 * DAY));
    let future_ca = new_ca(hence(DAY));
    let cases = [
        (valid(), None),
        (SecretBuilder::default(), Some(SecretFault::Missing(LEAF))),
        (
            valid().without(LEAF_KEY),
            Some(SecretFault::Missing(LEAF_KEY)),
        ),
        (valid().with(LEAF, ""), Some(SecretFault::Unreadable(LEAF))),
        (
            valid().with(LEAF, GARBAGE),
            Some(SecretFault::Unreadable(LEAF)),
        ),
        (
            valid().with(LEAF_KEY, "x"),
            Some(SecretFault::Unreadable(LEAF_KEY)),
        ),
        (
            valid().with(LEAF_KEY, GARBAGE),
            Some(SecretFault::Unreadable(LEAF_KEY)),
        ),
        (valid().with(LEAF_KEY, key), Some(mismatch)),
        (
            valid().trusting(&[&other.certificate]),
            Some(SecretFault::Untrusted),
        ),
        (valid().without(CA_BUNDLE), Some(SecretFault::Untrusted)),
        (valid().with(CA_BUNDLE, "x"), Some(SecretFault::Untrusted)),
        (without_name, Some(SecretFault::Name(names()[1].clone()))),
        (
            valid().leaf_of(&ca, ago(31 * DAY)),
            Some(SecretFault::Expired(LEAF)),
        ),
        (
            valid().leaf_of(&ca, hence(DAY)),
            Some(SecretFault::NotYetValid(LEAF)),
        ),
        (
            SecretBuilder::usual(&expired_ca, ago(366 * DAY)),
            Some(SecretFault::Expired(LEAF)),
        ),
    ];
    let future_secret = SecretBuilder::usual(&future_ca, now());
    let cases = cases
        .into_iter()
        .chain([(future_secret, Some(SecretFault::NotYetValid(CA_BUNDLE)))]);
    for (number, (secret, expected)) in cases.enumerate() {
        let result = Leaf::read(&secret.0).and_then(|leaf| leaf.verify(&names(), now()).map(drop));
        assert_eq!(result.err(), expected, "case {number}");
    }
}

/// CERT-5
#[test]
fn every_ca_fault_is_reported() {
    let (ca, other) = (new_ca(ago(DAY)), new_ca(ago(DAY)));
    let valid = || SecretBuilder::usual(&ca, now());
    let secret = valid().0;
    let leaf = std::str::from_utf8(secret.get(LEAF).unwrap()).unwrap();
    let key = std::str::from_utf8(secret.get(LEAF_KEY).unwrap()).unwrap();
    let mismatch = |key, certificate| SecretFault::Mismatch { key, certificate };
    let cases = [
        (valid(), None),
        (valid().without(CA_KEY), Some(SecretFault::Missing(CA_KEY))),
        (
            valid().with(CA_KEY, GARBAGE),
            Some(SecretFault::Unreadable(CA_KEY)),
        ),
        (
            valid().without(CA_BUNDLE),
            Some(SecretFault::Missing(CA_BUNDLE)),
        ),
        (
            valid().with(CA_BUNDLE, "x"),
            Some(SecretFault::Unreadable(CA_BUNDLE)),
        ),
        (
            valid().current_ca(&other),
            Some(mismatch(CA_KEY, CA_BUNDLE)),
        ),
        (
            valid().with(CA_KEY, key).with(CA_BUNDLE, leaf),
            Some(SecretFault::NotACa(CA_BUNDLE)),
        ),
    ];
    for (number, (secret, expected)) in cases.into_iter().enumerate() {
        let current_ca = ParsedSecret::read(&secret.0, None).current_ca;
        assert_eq!(current_ca.err(), expected, "case {number}");
    }

    let both = || valid().next(&other);
    let cases = [
        (valid(), None),
        (both(), Some(None)),
        (
            both().without(NEXT_CA_KEY),
            Some(Some(SecretFault::Missing(NEXT_CA_KEY))),
        ),
        (
            both().without(NEXT_CA),
            Some(Some(SecretFault::Missing(NEXT_CA))),
        ),
        (
            both().with(NEXT_CA, "x"),
            Some(Some(SecretFault::Unreadable(NEXT_CA))),
        ),
        (
            both().with(NEXT_CA, &ca.certificate.pem()),
            Some(Some(mismatch(NEXT_CA_KEY, NEXT_CA))),
        ),
    ];
    for (number, (secret, expected)) in cases.into_iter().enumerate() {
        let next = ParsedSecret::read(&secret.0, None).next;
        assert_eq!(next.map(Result::err), expected, "case {number}");
    }
}

#[test]
fn leaf_is_verified_at_the_given_time() {
    let ca = new_ca(now());
    let leaf = SecretBuilder::usual(&ca, now()).read();
    let backdate = Duration::from_mins(10);
    let second = Duration::from_secs(1);
    for (at, expected) in [
        (ago(backdate + second), Some(SecretFault::NotYetValid(LEAF))),
        (ago(backdate), None),
        (hence((30 * DAY).saturating_sub(second)), None),
        (hence(30 * DAY), Some(SecretFault::Expired(LEAF))),
    ] {
        assert_eq!(leaf.verify(&names(), at).err(), expected, "{at}");
    }
    let issuer = leaf.verify(&names(), now()).unwrap();
    assert_eq!(issuer, &ca.certificate);
}

/// CERT-7
#[test]
fn leaf_may_chain_to_its_ca_through_intermediates() {
    // cert-manager appends the intermediates to the leaf.
    let key = || KeyPair::generate().unwrap();
    let params = |name: &str, is_ca| {
        let mut params = CertificateParams::new(names()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = is_ca;
        params
    };
    let ca = || IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params("root", ca()), key()).unwrap();
    let intermediate =
        CertifiedIssuer::signed_by(params("intermediate", ca()), key(), &root).unwrap();
    let leaf_key = key();
    let leaf = params("leaf", IsCa::NoCa).signed_by(&leaf_key, &intermediate);
    let leaf = leaf.unwrap().pem();
    let secret = SecretBuilder::default()
        .with(LEAF_KEY, &leaf_key.serialize_pem())
        .with(CA_BUNDLE, &root.pem());
    let issuer = |chain: &str| secret.clone().with(LEAF, chain).read().issuer;
    assert_eq!(issuer(&leaf), None);
    let root = Certificate::from_der(root.der().clone()).unwrap();
    assert_eq!(issuer(&format!("{leaf}{}", intermediate.pem())), Some(root));
}

#[test]
fn invalid_authority_since_annotation_is_ignored() {
    let secret = SecretBuilder::usual(&new_ca(now()), now());
    let since = |text| ParsedSecret::read(&secret.0, text).since;
    assert_eq!(since(Some("2026-11-21T12:00:00Z")), Some(now()));
    assert_eq!(since(Some("soon")), None);
    assert_eq!(since(None), None);
}
