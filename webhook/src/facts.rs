//! What the controller tells beside actors, in one `ConfigMap` (ADM-7).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use asya_shared::admission::facts::Facts;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tracing::warn;

/// Shorter than the client's read timeout: a connection that died unnoticed is found by that.
const WATCH_SECONDS: u32 = 50;
const BACKOFF: Duration = Duration::from_secs(2);

/// What was told last. A clone is another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct Known {
    facts: Arc<RwLock<Option<Arc<Facts>>>>,
}

impl Known {
    /// What was told last; nothing in particular before that.
    pub fn now(&self) -> Arc<Facts> {
        let facts = self.facts.read();
        let facts = facts.unwrap_or_else(PoisonError::into_inner);
        facts.clone().unwrap_or_default()
    }

    /// Whether anything was told.
    pub fn is_told(&self) -> bool {
        let facts = self.facts.read();
        facts.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// This is so now.
    pub fn tell(&self, facts: Facts) -> Arc<Facts> {
        let facts = Arc::new(facts);
        let known = self.facts.write();
        *known.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&facts));
        facts
    }
}

/// Follows the `ConfigMap` for ever; `heard` is told of every state of it. One that goes leaves what was known.
pub async fn follow(client: Client, namespace: &str, name: &str, heard: impl Fn(Facts)) {
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher::watcher(api, config.timeout(WATCH_SECONDS)));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(map) | Event::Apply(map)) => {
                let data: BTreeMap<_, _> = map.data.unwrap_or_default();
                heard(Facts::read(&data));
            }
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
            Err(error) => {
                warn!(%error, name, "the watch of the ConfigMap fails");
                tokio::time::sleep(BACKOFF).await;
            }
        }
    }
}
