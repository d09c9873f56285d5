//! Hashes that are stored in the cluster and so must be stable across versions, platforms and processes.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The first 16 hex digits of the SHA-256 of `value` as canonical JSON: object keys sorted, no spaces.
///
/// # Errors
/// When `value` cannot be serialised as JSON.
pub fn of_json<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(of_value(&serde_json::to_value(value)?))
}

/// [`of_json`] for a value that is already JSON.
#[must_use]
pub fn of_value(value: &Value) -> String {
    // `Value`'s map is a `BTreeMap` (serde_json without `preserve_order`), so the keys are sorted.
    of_bytes(value.to_string().as_bytes())
}

/// The first 16 hex digits of the SHA-256 of `bytes`.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let mut text = String::with_capacity(16);
    for byte in &digest[..8] {
        // writing to a String cannot fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{of_bytes, of_json};
    use serde_json::json;

    #[test]
    fn order_of_keys_does_not_change_the_hash() {
        let one: serde_json::Value =
            serde_json::from_str(r#"{"a":1,"b":[{"d":2,"c":3}]}"#).unwrap_or_default();
        let two: serde_json::Value =
            serde_json::from_str(r#"{"b":[{"c":3,"d":2}],"a":1}"#).unwrap_or_default();
        assert_eq!(of_json(&one).ok(), of_json(&two).ok());
        assert_ne!(of_json(&one).ok(), of_json(&json!({"a": 2})).ok());
    }

    #[test]
    fn hash_is_the_start_of_sha256() {
        assert_eq!(of_bytes(b"abc"), "ba7816bf8f01cfea");
    }
}
