#![allow(clippy::unwrap_used)]

use super::{Certificate, to_pem_bundle};
use crate::testing::{new_ca, now};

#[test]
fn pem_bundle_is_parsed_without_duplicates_and_unreadable_content() {
    let (one, other) = (new_ca(now()).certificate, new_ca(now()).certificate);
    let text = format!(
        "a comment\n{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{}{}\nrubbish -----BEGIN",
        one.pem(),
        other.pem(),
        one.pem(),
    );
    let certificates = Certificate::all_in(text.as_bytes());
    assert_eq!(certificates, [one, other]);
    assert_eq!(
        Certificate::all_in(to_pem_bundle(&certificates).as_bytes()),
        certificates
    );
    assert!(Certificate::all_in(b"\xff\x00-----BEGIN CERTIFICATE-----\n").is_empty());
}

#[test]
fn fingerprint_is_a_sha_256_in_hexadecimal_digits() {
    let fingerprint = new_ca(now()).certificate.fingerprint;
    let text = fingerprint.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse(), Ok(fingerprint));
    for invalid in [
        "",
        "00",
        &text[1..],
        &format!("{text}0"),
        &"g".repeat(64),
        &"é".repeat(32),
    ] {
        invalid.parse::<super::Fingerprint>().unwrap_err();
    }
}
