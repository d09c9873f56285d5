//! Certificates for tests, at a fixed time.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use crate::certificate::{Certificate, to_pem_bundle};
use crate::data::{CA_BUNDLE, CA_KEY, Data, LEAF, LEAF_KEY, NEXT_CA, NEXT_CA_KEY};
use crate::issuer::{Ca, Settings};
use crate::parsed_secret::Leaf;
use crate::time::{after, before};

pub const DAY: Duration = Duration::from_hours(24);
pub const NAME: &str = "asya-webhook.asya-system.svc";

pub fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

pub fn ago(duration: Duration) -> Timestamp {
    before(now(), duration)
}

pub fn hence(duration: Duration) -> Timestamp {
    after(now(), duration)
}

pub fn names() -> Vec<String> {
    vec![
        NAME.to_owned(),
        format!("{NAME}.cluster.local"),
        "127.0.0.1".to_owned(),
    ]
}

pub fn settings() -> Settings {
    Settings::with_defaults(names())
}

pub fn new_ca(issued_at: Timestamp) -> Ca {
    Ca::new(&settings(), issued_at).unwrap()
}

/// Builds the content of a Secret.
#[derive(Clone, Default)]
pub struct SecretBuilder(pub Data);

impl SecretBuilder {
    /// A leaf from this CA, the CA's key, and this CA as the only trusted one.
    pub fn usual(ca: &Ca, leaf: Timestamp) -> Self {
        Self::default()
            .leaf_of(ca, leaf)
            .current_ca(ca)
            .trusting(&[&ca.certificate])
    }

    pub fn leaf_of(self, ca: &Ca, issued_at: Timestamp) -> Self {
        self.leaf(ca, &settings(), issued_at)
    }

    pub fn leaf(mut self, ca: &Ca, settings: &Settings, issued_at: Timestamp) -> Self {
        let leaf = ca.issue(settings, issued_at).unwrap();
        self.0.set(LEAF, &leaf.certificate.pem());
        self.0.set(LEAF_KEY, &leaf.key);
        self
    }

    pub fn current_ca(mut self, ca: &Ca) -> Self {
        self.0.set(CA_KEY, &ca.key_pem());
        self
    }

    pub fn next(mut self, ca: &Ca) -> Self {
        self.0.set(NEXT_CA, &ca.certificate.pem());
        self.0.set(NEXT_CA_KEY, &ca.key_pem());
        self
    }

    pub fn trusting(mut self, cas: &[&Certificate]) -> Self {
        self.0.set(CA_BUNDLE, &to_pem_bundle(cas.iter().copied()));
        self
    }

    pub fn with(mut self, key: &str, text: &str) -> Self {
        self.0.set(key, text);
        self
    }

    pub fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }

    pub fn read(&self) -> Leaf {
        Leaf::read(&self.0).unwrap()
    }
}
