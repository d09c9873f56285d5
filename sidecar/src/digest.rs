//! Hex-encoded hashes.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of several parts, each with its length, as 64 hexadecimal digits.
pub fn of_parts(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hexadecimal(&hash.finalize())
}

/// The SHA-256 of bytes, as 64 hexadecimal digits.
pub fn of(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // writing to a String cannot fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}
