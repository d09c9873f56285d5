//! The Secret after arbitrary changes by anyone (CERT-5).

use asya_fuzz::check;
use asya_fuzz::input::damaged;
use asya_fuzz::proptest::collection::vec;
use asya_fuzz::proptest::prelude::{Strategy, any, prop_assert, prop_oneof};
use asya_fuzz::proptest::sample::select;

use super::super::ParsedSecret;
use crate::certificate::Certificate;
use crate::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::testing::{DAY, SecretBuilder, ago, names, new_ca, now};

const KEYS: [&str; 6] = [LEAF, LEAF_KEY, CA_BUNDLE, CA_KEY, NEXT_CA, NEXT_CA_KEY];

/// The Secret with one value changed, removed, or moved to another key.
fn secrets() -> impl Strategy<Value = Data> {
    let valid = SecretBuilder::usual(&new_ca(ago(20 * DAY)), ago(DAY)).0;
    let values: Vec<Vec<u8>> = KEYS
        .iter()
        .filter_map(|key| Some(valid.get(key)?.to_vec()))
        .collect();
    let value = prop_oneof![4 => damaged(values), 1 => vec(any::<u8>(), 0..64)];
    vec((select(KEYS.to_vec()), value), 0..3).prop_map(move |changes| {
        let mut all = serde_json::to_value(&valid).unwrap();
        for (key, value) in changes {
            all[key] = serde_json::to_value(k8s_openapi::ByteString(value)).unwrap();
        }
        serde_json::from_value(all).unwrap()
    })
}

/// CERT-5
#[test]
fn any_secret_is_read_and_what_is_served_names_and_matches() {
    check(&secrets(), |data| {
        let parsed = ParsedSecret::read(&data, Some("2026-11-21T12:00:00Z"));
        if let Ok(leaf) = &parsed.leaf
            && leaf.verify(&names(), now()).is_ok()
        {
            prop_assert!(leaf.served.keys_match().is_ok());
            prop_assert!(
                leaf.issuer
                    .as_ref()
                    .is_some_and(|ca| parsed.cas.contains(ca))
            );
        }
        if let Ok(ca) = &parsed.current_ca {
            prop_assert!(ca.certificate.is_ca && parsed.cas.contains(&ca.certificate));
        }
        Ok(())
    });
}

/// CERT-5, CERT-7
#[test]
fn any_bytes_are_certificates_that_can_be_written_again_or_none() {
    check(&secrets(), |data| {
        for text in KEYS.iter().filter_map(|key| data.get(key)) {
            for certificate in Certificate::all_in(text) {
                let again = Certificate::all_in(certificate.pem().as_bytes());
                prop_assert!(again == [certificate]);
            }
        }
        Ok(())
    });
}
