#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::{Ca, Error};
use crate::testing::{DAY, SecretBuilder, hence, names, new_ca, now, settings};

/// CERT-1
#[test]
fn certificates_are_backdated_and_have_the_configured_lifetime() {
    let ca = new_ca(now());
    let leaf = ca.issue(&settings(), now()).unwrap().certificate;
    let backdated = now() - Duration::from_mins(10);
    assert_eq!(
        (ca.certificate.not_before, ca.certificate.not_after),
        (backdated, hence(365 * DAY))
    );
    assert_eq!(
        (leaf.not_before, leaf.not_after),
        (backdated, hence(30 * DAY))
    );
    assert!(ca.certificate.is_ca && !leaf.is_ca);
}

/// CERT-1
#[test]
fn leaf_covers_its_names_and_chains_to_its_ca_only() {
    let (ca, other) = (new_ca(now()), new_ca(now()));
    let leaf = ca.issue(&settings(), now()).unwrap().certificate;
    for name in names() {
        assert!(leaf.covers_name(&name), "{name}");
    }
    for name in ["asya-webhook.other.svc", "127.0.0.2", "localhost", "*"] {
        assert!(!leaf.covers_name(name), "{name}");
    }
    assert!(leaf.is_issued_by(&ca.certificate, &[]));
    assert!(!leaf.is_issued_by(&other.certificate, &[]));
}

#[test]
fn leaf_does_not_outlive_its_ca() {
    let ca = new_ca(now());
    let late = hence(350 * DAY);
    let leaf = ca.issue(&settings(), late).unwrap().certificate;
    assert_eq!(leaf.not_after, ca.certificate.not_after);
}

#[test]
fn invalid_name_is_rejected() {
    let mut settings = settings();
    settings.names.push("no name".to_owned());
    let Err(Error::Name(name)) = new_ca(now()).issue(&settings, now()) else {
        panic!("the certificate was signed");
    };
    assert_eq!(name, "no name");
}

#[test]
fn stored_ca_signs_leaves() {
    let original = new_ca(now());
    let others = [new_ca(now()).certificate, original.certificate.clone()];
    let stored = Ca::from_stored(original.key_pem().as_bytes(), &others);
    let stored = stored.unwrap().unwrap();
    assert_eq!(stored.certificate, original.certificate);
    let leaf = stored.issue(&settings(), now()).unwrap().certificate;
    assert!(leaf.is_issued_by(&original.certificate, &[]));
}

/// CERT-8
#[test]
fn debug_output_contains_no_private_key() {
    let ca = new_ca(now());
    let stored = SecretBuilder::usual(&ca, now());
    let key = ca.key_pem();
    let secret: Vec<_> = key.lines().filter(|line| !line.contains("--")).collect();
    let outputs = [
        format!("{ca:?}"),
        format!("{:?}", stored.0),
        format!("{:?}", stored.read()),
        format!(
            "{:?}",
            crate::parsed_secret::ParsedSecret::read(&stored.0, None)
        ),
    ];
    for output in outputs {
        let is_long = output.len() > 2000;
        let leaks = secret.iter().any(|line| output.contains(line));
        assert!(
            !is_long && !leaks && !output.contains("PRIVATE"),
            "{output}"
        );
    }
}
