//! Facts about the cluster that the controller publishes in a `ConfigMap` (ADM-7).

use std::sync::Arc;
use std::time::Duration;

use asya_process::watch_loop;
use asya_shared::admission::facts::WebhookFacts;
use asya_shared::backoff::Backoff;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Error, Event};
use kube::{Api, Client};
use parking_lot::RwLock;
use tracing::warn;

/// Shorter than the client's read timeout, which thus only closes dead connections.
const WATCH_SECONDS: u32 = 50;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(2));

/// The latest facts. Clones share state.
#[derive(Clone, Debug, Default)]
pub struct SharedFacts {
    facts: Arc<RwLock<Option<Arc<WebhookFacts>>>>,
}

impl SharedFacts {
    /// Returns the latest facts, or the defaults before the first read.
    pub fn latest(&self) -> Arc<WebhookFacts> {
        self.facts.read().clone().unwrap_or_default()
    }

    /// Whether any facts have been read.
    pub fn is_synced(&self) -> bool {
        self.facts.read().is_some()
    }

    /// Stores the facts and returns them.
    pub fn set(&self, facts: WebhookFacts) -> Arc<WebhookFacts> {
        let facts = Arc::new(facts);
        *self.facts.write() = Some(Arc::clone(&facts));
        facts
    }
}

/// Follows the `ConfigMap` forever and passes every version of it to `on_update`. If it is deleted, the latest facts
/// are kept.
pub async fn follow(client: Client, namespace: &str, name: &str, on_update: impl Fn(WebhookFacts)) {
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let apply = |event| {
        if let Event::InitApply(map) | Event::Apply(map) = event {
            let ConfigMap { data, .. } = map;
            on_update(WebhookFacts::read(&data.unwrap_or_default()));
        }
    };
    let failed = |error: &Error, failures| warn!(%error, failures, name, "the watch of the ConfigMap failed");
    watch_loop::follow(api, config.timeout(WATCH_SECONDS), BACKOFF, apply, failed).await;
}
