//! What the two Secrets hold (CERT-1): one what the webhook serves by, the other the keys of its CAs, which it cannot read.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

/// The leaf, and what leads from it to an authority.
pub const LEAF: &str = "tls.crt";
/// The leaf's private key.
pub const LEAF_KEY: &str = "tls.key";
/// The authorities that clients are to trust.
pub const AUTHORITIES: &str = "ca.crt";
/// The private key of the one of them that signs.
pub const AUTHORITY_KEY: &str = "ca.key";
/// The authority that is to sign next.
pub const NEXT: &str = "next-ca.crt";
/// Its private key.
pub const NEXT_KEY: &str = "next-ca.key";

/// The Secret's data. Its keys are shown, and nothing of what they hold.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Data(BTreeMap<String, ByteString>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Data {
    /// What a key holds.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.0.as_slice())
    }

    /// Puts a text under a key.
    pub fn set(&mut self, key: &str, text: &str) {
        let text = ByteString(text.as_bytes().to_vec());
        self.0.insert(key.to_owned(), text);
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// What goes into the webhook's Secret, and what into that of the authorities.
    #[must_use]
    pub fn split(mut self) -> (Self, Self) {
        let authority = self.0.extract_if(.., |key, _| is_of_authority(key));
        let authority = Self(authority.collect());
        (self, authority)
    }

    /// Both again. What stands in the webhook's Secret counts: only a release that knew no other has put it there.
    #[must_use]
    pub fn with(mut self, authority: &Self) -> Self {
        for (key, value) in &authority.0 {
            if is_of_authority(key) {
                self.0.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        self
    }

    /// Whether no key of an authority is among it.
    #[must_use]
    pub fn is_split(&self) -> bool {
        !self.0.keys().any(|key| is_of_authority(key))
    }

    /// What a server needs, and no more: without the authorities' keys.
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
