#![allow(clippy::unwrap_used)]

use super::{Certificate, bundle_of};
use crate::testing::{authority, now};

#[test]
fn a_bundle_has_each_certificate_once_and_nothing_else() {
    let (one, other) = (authority(now()).certificate, authority(now()).certificate);
    let text = format!(
        "a comment\n{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{}{}\nrubbish -----BEGIN",
        one.pem(),
        other.pem(),
        one.pem(),
    );
    let read = Certificate::all_in(text.as_bytes());
    assert_eq!(read, [one, other]);
    assert_eq!(Certificate::all_in(bundle_of(&read).as_bytes()), read);
    assert!(Certificate::all_in(b"\xff\x00-----BEGIN CERTIFICATE-----\n").is_empty());
}

#[test]
fn a_fingerprint_is_a_sha_256_in_hexadecimal_digits() {
    let fingerprint = authority(now()).certificate.fingerprint;
    let text = fingerprint.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse(), Ok(fingerprint));
    for bad in [
        "",
        "00",
        &text[1..],
        &format!("{text}0"),
        &"g".repeat(64),
        &"é".repeat(32),
    ] {
        bad.parse::<super::Fingerprint>().unwrap_err();
    }
}
