//! Publishes facts that only the controller knows to the webhook, in one `ConfigMap` that is written only when it does
//! not hold them (ADM-7).

use std::sync::Arc;

use asya_certs::ca_bundle::CaBundle;
use asya_shared::admission::OwnerRole;
use asya_shared::admission::facts::{FACTS_KEY, WebhookFacts};
use asya_shared::names::{MANAGED_BY, label, manager};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tracing::info;

use super::restore_backoff::RestoreBackoff;
use super::watched_store::WatchedStore;
use super::webhook_configs::ObjectOutcome;
use crate::cluster::watch::{Selector, Watch};
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Key, Projected, WebhookFactsRecord};
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;

/// The facts `ConfigMap`: the cache that a watch fills, and the operator's writes to it.
pub(super) struct FactsConfigMap {
    client: Client,
    namespace: String,
    name: String,
    store: Arc<WatchedStore<WebhookFactsRecord>>,
    /// Facts that this process has published, and the UID of the `ClusterRole` that owns them.
    published: Option<(WebhookFacts, String)>,
    restore_backoff: RestoreBackoff,
}

impl FactsConfigMap {
    pub(super) fn new(client: Client, namespace: &str, release: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: format!("{release}-webhook-facts"),
            store: Arc::default(),
            published: None,
            restore_backoff: RestoreBackoff::default(),
        }
    }

    pub(super) fn watch(&self, metrics: &Arc<Metrics>) -> Watch<WebhookFactsRecord> {
        Watch {
            api: Api::namespaced(self.client.clone(), &self.namespace),
            scope: WatchScope::Namespace(self.namespace.as_str().into()),
            selector: Selector {
                fields: Some(format!("metadata.name={}", self.name).into()),
                ..Selector::default()
            },
            served: None,
            sink: self.store.clone(),
            check: Readiness::default().check("webhook facts"),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// CAs published last, by this process or by the previous leader.
    pub(super) fn published_cas(&self) -> Vec<String> {
        if let Some((facts, _)) = &self.published {
            return facts.trusted.clone();
        }
        let existing = self.existing();
        let facts =
            existing.and_then(|existing| existing.facts.as_deref().map(WebhookFacts::parse));
        facts.unwrap_or_default().trusted
    }

    fn existing(&self) -> Option<Arc<WebhookFactsRecord>> {
        self.store.store.get(&Key::new(&self.namespace, &self.name))
    }

    /// Writes the facts if the `ConfigMap` does not hold them, or has lost its owner.
    ///
    /// # Errors
    /// If the API server rejects the request or fails.
    pub(super) async fn publish(
        &mut self,
        facts: WebhookFacts,
        owner_role: &OwnerRole,
    ) -> Result<ObjectOutcome, String> {
        let data = facts.to_data();
        let is_current = self.existing().is_some_and(|existing| {
            existing.facts.as_deref() == data.get(FACTS_KEY).map(String::as_str)
                && existing.owners.iter().any(|uid| **uid == *owner_role.uid)
        });
        let desired = Some((facts, owner_role.uid.clone()));
        let is_restore = self.published == desired;
        if is_current {
            self.published = desired;
            return Ok(ObjectOutcome::Unchanged);
        }
        let now = Instant::now();
        if is_restore && let Some(at) = self.restore_backoff.not_before(&self.name, now) {
            return Ok(ObjectOutcome::Deferred(at));
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {label::MANAGED_BY: MANAGED_BY, label::COMPONENT: "admission"},
                "ownerReferences": [{
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "name": owner_role.name, "uid": owner_role.uid,
                }],
            },
            "data": data,
        });
        let api: Api<Projected<WebhookFactsRecord>> =
            Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply(manager::ADMISSION).force();
        let written = api.patch(&self.name, &params, &Patch::Apply(&object)).await;
        let written = written.map_err(|error| format!("ConfigMap {}: {error}", self.name))?;
        // The watch may lag, and the former content must not count as a change by another client.
        self.store.store.apply_response(&written);
        self.published = desired;
        if is_restore {
            self.restore_backoff.record_restore(&self.name, now);
            info!(
                name = self.name,
                "ConfigMap restored: another client changed or deleted it"
            );
        }
        Ok(ObjectOutcome::Written)
    }
}

/// Fingerprints of the CAs that every one of these `caBundle`s holds (CERT-7).
pub(super) fn cas_in_every_bundle(bundles: &[Arc<[u8]>]) -> Vec<String> {
    let mut bundles = bundles.iter().map(|bundle| {
        let bundle = CaBundle::read(bundle);
        bundle
            .fingerprints()
            .map(|fingerprint| fingerprint.to_string())
            .collect::<Vec<_>>()
    });
    let mut common = bundles.next().unwrap_or_default();
    for others in bundles {
        common.retain(|fingerprint| others.contains(fingerprint));
    }
    common.sort();
    common
}
