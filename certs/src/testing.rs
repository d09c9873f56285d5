//! Certificates for tests, at a fixed time.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;

use crate::bundle::Leaf;
use crate::certificate::{Certificate, bundle_of};
use crate::data::{AUTHORITIES, AUTHORITY_KEY, Data, LEAF, LEAF_KEY, NEXT, NEXT_KEY};
use crate::mint::{Authority, Settings};
use crate::time::{after, before};

pub const DAY: Duration = Duration::from_hours(24);
pub const NAME: &str = "asya-webhook.asya-system.svc";

pub fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

pub fn ago(wait: Duration) -> Timestamp {
    before(now(), wait)
}

pub fn hence(wait: Duration) -> Timestamp {
    after(now(), wait)
}

pub fn names() -> Vec<String> {
    vec![
        NAME.to_owned(),
        format!("{NAME}.cluster.local"),
        "127.0.0.1".to_owned(),
    ]
}

pub fn settings() -> Settings {
    Settings::of(names())
}

pub fn authority(made: Timestamp) -> Authority {
    Authority::new(&settings(), made).unwrap()
}

/// Builds the content of a Secret piece by piece.
#[derive(Clone, Default)]
pub struct Held(pub Data);

impl Held {
    /// A leaf from this CA, the CA key, and the CA as the only trusted one.
    pub fn usual(authority: &Authority, leaf: Timestamp) -> Self {
        Self::default()
            .leaf_of(authority, leaf)
            .signer(authority)
            .trusting(&[&authority.certificate])
    }

    pub fn leaf_of(self, authority: &Authority, made: Timestamp) -> Self {
        self.leaf(authority, &settings(), made)
    }

    pub fn leaf(mut self, authority: &Authority, settings: &Settings, made: Timestamp) -> Self {
        let leaf = authority.issue(settings, made).unwrap();
        self.0.set(LEAF, &leaf.certificate.pem());
        self.0.set(LEAF_KEY, &leaf.key);
        self
    }

    pub fn signer(mut self, authority: &Authority) -> Self {
        self.0.set(AUTHORITY_KEY, &authority.key_pem());
        self
    }

    pub fn next(mut self, authority: &Authority) -> Self {
        self.0.set(NEXT, &authority.certificate.pem());
        self.0.set(NEXT_KEY, &authority.key_pem());
        self
    }

    pub fn trusting(mut self, authorities: &[&Certificate]) -> Self {
        self.0
            .set(AUTHORITIES, &bundle_of(authorities.iter().copied()));
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
