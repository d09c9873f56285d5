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
pub const AUTHORITIES: &str = "ca.crt";
/// The private key of the CA in `ca.crt` that signs leaves.
pub const AUTHORITY_KEY: &str = "ca.key";
/// The CA that will sign next.
pub const NEXT: &str = "next-ca.crt";
/// The private key of the next CA.
pub const NEXT_KEY: &str = "next-ca.key";

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
    pub fn split(mut self) -> (Self, Self) {
        let authority = self.0.extract_if(.., |key, _| is_of_authority(key));
        let authority = Self(authority.collect());
        (self, authority)
    }

    /// Merges the data of the CA keys back in. A key that is present in the webhook's Secret takes precedence: only a
    /// release without the second Secret can have put it there.
    #[must_use]
    pub fn with(mut self, authority: &Self) -> Self {
        for (key, value) in &authority.0 {
            if is_of_authority(key) {
                self.0.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        self
    }

    /// Whether it holds nothing that belongs in the Secret with the CA keys.
    #[must_use]
    pub fn is_split(&self) -> bool {
        !self.0.keys().any(|key| is_of_authority(key))
    }

    /// Keeps only what a server needs: the leaf, its key and the CA bundle, but no CA keys.
    #[must_use]
    pub fn of_server(mut self) -> Self {
        self.0
            .retain(|key, _| [LEAF, LEAF_KEY, AUTHORITIES].contains(&key.as_str()));
        self
    }
}

fn is_of_authority(key: &str) -> bool {
    [AUTHORITY_KEY, NEXT, NEXT_KEY].contains(&key)
}
