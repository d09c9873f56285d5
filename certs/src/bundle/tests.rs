#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::{Bundle, Fault, Leaf};
use crate::certificate::Certificate;
use crate::data::{AUTHORITIES, AUTHORITY_KEY, LEAF, LEAF_KEY, NEXT, NEXT_KEY};
use crate::testing::{DAY, Held, ago, authority, hence, names, now, settings};

const GARBAGE: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";

/// CERT-5
#[test]
fn every_leaf_fault_is_reported() {
    let (ours, other) = (authority(ago(20 * DAY)), authority(ago(DAY)));
    let usual = || Held::usual(&ours, ago(DAY));
    let stranger = Held::usual(&other, ago(DAY));
    let key = std::str::from_utf8(stranger.0.get(LEAF_KEY).unwrap()).unwrap();
    let nameless = {
        let mut settings = settings();
        settings.names.truncate(1);
        usual().leaf(&ours, &settings, ago(DAY))
    };
    let mismatch = Fault::Mismatch {
        key: LEAF_KEY,
        certificate: LEAF,
    };
    let past = authority(ago(366 * DAY));
    let future = authority(hence(DAY));
    let cases = [
        (usual(), None),
        (Held::default(), Some(Fault::Missing(LEAF))),
        (usual().without(LEAF_KEY), Some(Fault::Missing(LEAF_KEY))),
        (usual().with(LEAF, ""), Some(Fault::Unreadable(LEAF))),
        (usual().with(LEAF, GARBAGE), Some(Fault::Unreadable(LEAF))),
        (
            usual().with(LEAF_KEY, "x"),
            Some(Fault::Unreadable(LEAF_KEY)),
        ),
        (
            usual().with(LEAF_KEY, GARBAGE),
            Some(Fault::Unreadable(LEAF_KEY)),
        ),
        (usual().with(LEAF_KEY, key), Some(mismatch)),
        (
            usual().trusting(&[&other.certificate]),
            Some(Fault::Untrusted),
        ),
        (usual().without(AUTHORITIES), Some(Fault::Untrusted)),
        (usual().with(AUTHORITIES, "x"), Some(Fault::Untrusted)),
        (nameless, Some(Fault::Name(names()[1].clone()))),
        (
            usual().leaf_of(&ours, ago(31 * DAY)),
            Some(Fault::Expired(LEAF)),
        ),
        (
            usual().leaf_of(&ours, hence(DAY)),
            Some(Fault::NotYetValid(LEAF)),
        ),
        (
            Held::usual(&past, ago(366 * DAY)),
            Some(Fault::Expired(LEAF)),
        ),
    ];
    let early = Held::usual(&future, now());
    let cases = cases
        .into_iter()
        .chain([(early, Some(Fault::NotYetValid(AUTHORITIES)))]);
    for (number, (held, wanted)) in cases.enumerate() {
        let found = Leaf::read(&held.0).and_then(|leaf| leaf.judge(&names(), now()).map(drop));
        assert_eq!(found.err(), wanted, "case {number}");
    }
}

/// CERT-5
#[test]
fn every_ca_fault_is_reported() {
    let (ours, other) = (authority(ago(DAY)), authority(ago(DAY)));
    let usual = || Held::usual(&ours, now());
    let no_authority = usual().0;
    let leaf = std::str::from_utf8(no_authority.get(LEAF).unwrap()).unwrap();
    let key = std::str::from_utf8(no_authority.get(LEAF_KEY).unwrap()).unwrap();
    let mismatch = |key, certificate| Fault::Mismatch { key, certificate };
    let cases = [
        (usual(), None),
        (
            usual().without(AUTHORITY_KEY),
            Some(Fault::Missing(AUTHORITY_KEY)),
        ),
        (
            usual().with(AUTHORITY_KEY, GARBAGE),
            Some(Fault::Unreadable(AUTHORITY_KEY)),
        ),
        (
            usual().without(AUTHORITIES),
            Some(Fault::Missing(AUTHORITIES)),
        ),
        (
            usual().with(AUTHORITIES, "x"),
            Some(Fault::Unreadable(AUTHORITIES)),
        ),
        (
            usual().signer(&other),
            Some(mismatch(AUTHORITY_KEY, AUTHORITIES)),
        ),
        (
            usual().with(AUTHORITY_KEY, key).with(AUTHORITIES, leaf),
            Some(Fault::NoAuthority(AUTHORITIES)),
        ),
    ];
    for (number, (held, wanted)) in cases.into_iter().enumerate() {
        let found = Bundle::read(&held.0, None).signer;
        assert_eq!(found.err(), wanted, "case {number}");
    }

    let both = || usual().next(&other);
    let cases = [
        (usual(), None),
        (both(), Some(None)),
        (
            both().without(NEXT_KEY),
            Some(Some(Fault::Missing(NEXT_KEY))),
        ),
        (both().without(NEXT), Some(Some(Fault::Missing(NEXT)))),
        (both().with(NEXT, "x"), Some(Some(Fault::Unreadable(NEXT)))),
        (
            both().with(NEXT, &ours.certificate.pem()),
            Some(Some(mismatch(NEXT_KEY, NEXT))),
        ),
    ];
    for (number, (held, wanted)) in cases.into_iter().enumerate() {
        let found = Bundle::read(&held.0, None).next;
        assert_eq!(found.map(Result::err), wanted, "case {number}");
    }
}

#[test]
fn a_leaf_is_judged_at_the_given_time() {
    let ours = authority(now());
    let leaf = Held::usual(&ours, now()).read();
    let back = Duration::from_mins(10);
    let second = Duration::from_secs(1);
    for (at, wanted) in [
        (ago(back + second), Some(Fault::NotYetValid(LEAF))),
        (ago(back), None),
        (hence((30 * DAY).saturating_sub(second)), None),
        (hence(30 * DAY), Some(Fault::Expired(LEAF))),
    ] {
        assert_eq!(leaf.judge(&names(), at).err(), wanted, "{at}");
    }
    let issuer = leaf.judge(&names(), now()).unwrap();
    assert_eq!(issuer, &ours.certificate);
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
    let between = CertifiedIssuer::signed_by(params("between", ca()), key(), &root).unwrap();
    let leaf_key = key();
    let leaf = params("leaf", IsCa::NoCa).signed_by(&leaf_key, &between);
    let leaf = leaf.unwrap().pem();
    let held = Held::default()
        .with(LEAF_KEY, &leaf_key.serialize_pem())
        .with(AUTHORITIES, &root.pem());
    let issuer = |chain: &str| held.clone().with(LEAF, chain).read().issuer;
    assert_eq!(issuer(&leaf), None);
    let root = Certificate::from_der(root.der().clone()).unwrap();
    assert_eq!(issuer(&format!("{leaf}{}", between.pem())), Some(root));
}

#[test]
fn invalid_authority_since_annotation_is_ignored() {
    let held = Held::usual(&authority(now()), now());
    let since = |text| Bundle::read(&held.0, text).since;
    assert_eq!(since(Some("2026-11-21T12:00:00Z")), Some(now()));
    assert_eq!(since(Some("soon")), None);
    assert_eq!(since(None), None);
}
