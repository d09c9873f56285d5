//! Percent-encoding for URIs.

use std::fmt::Write as _;

/// Encodes text for use as the user or path of a URL.
pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // writing to a String cannot fail
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
