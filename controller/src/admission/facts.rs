//! Publishes what only the controller knows to the webhook, in one `ConfigMap` that is written only when the facts
//! change (ADM-7).

use std::sync::Arc;

use asya_certs::ca_bundle::CaBundle;
use asya_shared::admission::Anchor;
use asya_shared::admission::facts::WebhookFacts;
use asya_shared::names::{MANAGED_BY, label, manager};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// Writer of the facts `ConfigMap`.
pub(super) struct FactsConfigMap {
    client: Client,
    namespace: String,
    name: String,
    /// Facts that the `ConfigMap` is known to hold, and the uid of the anchor that owns it.
    published: Option<(WebhookFacts, String)>,
    /// Facts that the `ConfigMap` held before this process's first write; `None` until it has been read.
    initial: Option<WebhookFacts>,
}

impl FactsConfigMap {
    pub(super) fn new(client: Client, namespace: &str, release: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            name: format!("{release}-webhook-facts"),
            published: None,
            initial: None,
        }
    }

    /// CAs published last, by this process or by the previous leader.
    ///
    /// # Errors
    /// If the API server rejects the request or fails.
    pub(super) async fn published_cas(&mut self) -> Result<&[String], String> {
        if self.initial.is_none() {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let existing = api.get_opt(&self.name).await;
            let existing = existing.map_err(|error| format!("ConfigMap {}: {error}", self.name))?;
            let data = existing
                .and_then(|existing| existing.data)
                .unwrap_or_default();
            self.initial = Some(WebhookFacts::read(&data));
        }
        let published = self.published.as_ref().map(|(facts, _)| facts);
        let facts = published.or(self.initial.as_ref());
        Ok(facts.map(|facts| &*facts.trusted).unwrap_or_default())
    }

    /// Writes the facts if the `ConfigMap` holds different ones.
    ///
    /// # Errors
    /// If the API server rejects the request or fails.
    pub(super) async fn publish(
        &mut self,
        facts: WebhookFacts,
        anchor: &Anchor,
    ) -> Result<(), String> {
        let desired = Some((facts, anchor.uid.clone()));
        if self.published == desired {
            return Ok(());
        }
        let data = desired.as_ref().map(|(facts, _)| facts.to_data());
        let failed = |error: kube::Error| format!("ConfigMap {}: {error}", self.name);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        if self.published.is_none() {
            let existing = api.get_opt(&self.name).await.map_err(failed)?;
            if existing.and_then(|existing| existing.data) == data {
                self.published = desired;
                return Ok(());
            }
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
                    "name": anchor.name, "uid": anchor.uid,
                }],
            },
            "data": data,
        });
        let params = PatchParams::apply(manager::ADMISSION).force();
        let patch = Patch::Apply(&object);
        api.patch(&self.name, &params, &patch)
            .await
            .map_err(failed)?;
        self.published = desired;
        Ok(())
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
