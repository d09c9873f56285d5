#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::{Authority, Error};
use crate::testing::{DAY, Held, authority, hence, names, now, settings};

/// CERT-1
#[test]
fn certificates_are_backdated_and_have_the_configured_lifetime() {
    let authority = authority(now());
    let leaf = authority.issue(&settings(), now()).unwrap().certificate;
    let back = now() - Duration::from_mins(10);
    assert_eq!(
        (
            authority.certificate.not_before,
            authority.certificate.not_after
        ),
        (back, hence(365 * DAY))
    );
    assert_eq!((leaf.not_before, leaf.not_after), (back, hence(30 * DAY)));
    assert!(authority.certificate.is_authority && !leaf.is_authority);
}

/// CERT-1
#[test]
fn leaf_covers_its_names_and_chains_to_its_ca_only() {
    let (ours, other) = (authority(now()), authority(now()));
    let leaf = ours.issue(&settings(), now()).unwrap().certificate;
    for name in names() {
        assert!(leaf.names(&name), "{name}");
    }
    for name in ["asya-webhook.other.svc", "127.0.0.2", "localhost", "*"] {
        assert!(!leaf.names(name), "{name}");
    }
    assert!(leaf.is_of(&ours.certificate, &[]));
    assert!(!leaf.is_of(&other.certificate, &[]));
}

#[test]
fn a_leaf_ends_with_its_authority() {
    let authority = authority(now());
    let late = hence(350 * DAY);
    let leaf = authority.issue(&settings(), late).unwrap().certificate;
    assert_eq!(leaf.not_after, authority.certificate.not_after);
}

#[test]
fn invalid_name_is_rejected() {
    let mut settings = settings();
    settings.names.push("no name".to_owned());
    let Err(Error::Name(name)) = authority(now()).issue(&settings, now()) else {
        panic!("it was signed");
    };
    assert_eq!(name, "no name");
}

#[test]
fn a_stored_authority_signs_as_before() {
    let made = authority(now());
    let others = [authority(now()).certificate, made.certificate.clone()];
    let stored = Authority::stored(made.key_pem().as_bytes(), &others);
    let stored = stored.unwrap().unwrap();
    assert_eq!(stored.certificate, made.certificate);
    let leaf = stored.issue(&settings(), now()).unwrap().certificate;
    assert!(leaf.is_of(&made.certificate, &[]));
}

/// CERT-8
#[test]
fn no_private_key_is_shown() {
    let authority = authority(now());
    let held = Held::usual(&authority, now());
    let key = authority.key_pem();
    let secret: Vec<_> = key.lines().filter(|line| !line.contains("--")).collect();
    let shown = [
        format!("{authority:?}"),
        format!("{:?}", held.0),
        format!("{:?}", held.read()),
        format!("{:?}", crate::bundle::Bundle::read(&held.0, None)),
    ];
    for shown in shown {
        let long = shown.len() > 2000;
        let leaks = secret.iter().any(|line| shown.contains(line));
        assert!(!long && !leaks && !shown.contains("PRIVATE"), "{shown}");
    }
}
