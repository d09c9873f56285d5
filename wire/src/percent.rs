//! Percent-encoding for URIs (RFC 3986).

use std::fmt::Write as _;

/// Encodes text for use as the user or one path segment of a URL.
#[must_use]
pub fn encode(text: &str) -> String {
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

/// Decodes the output of [`encode`]; a `%` that does not begin an escape is kept. `None` if the result is not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            // `from_str_radix` would also accept a sign.
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn encoded_text_decodes_to_the_original() {
        for text in [
            "",
            "guest",
            "p@ss/w:rd",
            "100%",
            "ü €",
            "a b+c?d#e[f]",
            "\u{0}",
        ] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text), "{text:?}");
        }
    }

    /// SC-8
    #[test]
    fn unescaped_percent_sign_is_kept() {
        assert_eq!(decode("50%+1x%-1").as_deref(), Some("50%+1x%-1"));
        assert_eq!(decode("100%").as_deref(), Some("100%"));
        assert_eq!(decode("%zz%4").as_deref(), Some("%zz%4"));
        assert_eq!(decode("%ff"), None);
    }
}
