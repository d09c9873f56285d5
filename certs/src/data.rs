//! Content of the two Secrets: one holds the webhook's serving certificate, the other the private keys of its CAs,
//! which the webhook cannot read (CERT-1).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

/// The leaf certificate with its chain to a CA.
pub const LEAF: &str = "tls.crt";
/// The leaf's private key.
pub const LEAF_KEY: &str = "tls.key";
/// The CAs that clients should trust.
pub const CA_BUNDLE: &str = "ca.crt";
/// The private key of the CA in `ca.crt` that signs leaves.
pub const CA_KEY: &str = "ca.key";
/// The CA that will sign next.
pub const NEXT_CA: &str = "next-ca.crt";
/// The private key of the next CA.
pub const NEXT_CA_KEY: &str = "next-ca.key";

/// The data of a Secret. `Debug` shows only its keys, never the values.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Data(BTreeMap<String, ByteString>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Data {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.0.as_slice())
    }

    /// Sets a key to a text.
    pub fn set(&mut self, key: &str, text: &str) {
        let text = ByteString(text.as_bytes().to_vec());
        self.0.insert(key.to_owned(), text);
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Splits the data into that of the webhook's Secret and that of the Secret with the CA keys.
    #[must_use]
    pub fn split_off_ca_keys(mut self) -> (Self, Self) {
        let ca_keys = self.0.extract_if(.., |key, _| is_ca_key(key));
        let ca_keys = Self(ca_keys.collect());
        (self, ca_keys)
    }

    /// Merges the CA keys back in. A CA key in the webhook's own Secret takes precedence: only a version without the
    /// second Secret can have written it.
    #[must_use]
    pub fn with_ca_keys(mut self, ca_keys: &Self) -> Self {
        for (key, value) in &ca_keys.0 {
            if is_ca_key(key) {
                self.0.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        self
    }

    /// Whether the data contains anything that belongs in the Secret with the CA keys.
    #[must_use]
    pub fn has_ca_keys(&self) -> bool {
        self.0.keys().any(|key| is_ca_key(key))
    }

    /// Keeps only the leaf, its key and the CA bundle, as a server needs no CA keys.
    #[must_use]
    pub fn into_server_data(mut self) -> Self {
        self.0
            .retain(|key, _| [LEAF, LEAF_KEY, CA_BUNDLE].contains(&key.as_str()));
        self
    }
}

fn is_ca_key(key: &str) -> bool {
    [CA_KEY, NEXT_CA, NEXT_CA_KEY].contains(&key)
}
