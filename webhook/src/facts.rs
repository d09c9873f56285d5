//! Facts that the controller publishes in one `ConfigMap`, beside the actors (ADM-7).

use std::sync::Arc;
use std::time::Duration;

use asya_process::watching;
use asya_shared::admission::facts::Facts;
use asya_shared::backoff::Backoff;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use parking_lot::RwLock;
use tracing::warn;

/// Shorter than the client's read timeout, which therefore catches only connections that died unnoticed.
const WATCH_SECONDS: u32 = 50;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(2));

/// The facts read last. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct Known {
    facts: Arc<RwLock<Option<Arc<Facts>>>>,
}

impl Known {
    /// Returns the latest facts, or the defaults before the first read.
    pub fn now(&self) -> Arc<Facts> {
        self.facts.read().clone().unwrap_or_default()
    }

    /// Whether any facts have been read.
    pub fn is_told(&self) -> bool {
        self.facts.read().is_some()
    }

    /// Stores the facts and returns them.
    pub fn tell(&self, facts: Facts) -> Arc<Facts> {
        let facts = Arc::new(facts);
        *self.facts.write() = Some(Arc::clone(&facts));
        facts
    }
}

/// Follows the `ConfigMap` forever and passes every state of it to `heard`. If it is deleted, the known facts stay in
/// force.
pub async fn follow(client: Client, namespace: &str, name: &str, heard: impl Fn(Facts)) {
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let apply = |event| {
        if let Event::InitApply(map) | Event::Apply(map) = event {
            let ConfigMap { data, .. } = map;
            heard(Facts::read(&data.unwrap_or_default()));
        }
    };
    let failed = |error: &Error, failures| warn!(%error, failures, name, "the watch of the ConfigMap failed");
    watching::follow(api, config.timeout(WATCH_SECONDS), BACKOFF, apply, failed).await;
}
