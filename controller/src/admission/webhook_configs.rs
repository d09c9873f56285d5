//! Webhook configurations of one kind: the cache that a watch fills, and the operator's writes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::names::manager;
use json_patch::Patch as JsonPatch;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use super::restore_backoff::RestoreBackoff;
use super::watched_store::WatchedStore;
use crate::cluster::patch::{replace, test};
use crate::cluster::watch::{Selector, Watch};
use crate::cluster::watch_scope::WatchScope;
use crate::context::Context;
use crate::record::{
    Content, Key, Metadata, Projected, WebhookConfiguration, WebhookConfigurationRecord,
};
use crate::telemetry::events::EventReason;
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;

/// Selects the objects that the operator manages, of any release.
const MANAGED_BY_SELECTOR: &str = "app.kubernetes.io/managed-by=asya-operator";

pub(super) struct WebhookConfigs<K> {
    client: Client,
    /// Prefix of the configurations' names.
    release: String,
    store: Arc<WatchedStore<WebhookConfigurationRecord<K>>>,
    /// Content last applied, by name.
    applied: Mutex<BTreeMap<String, Content>>,
    restore_backoff: Mutex<RestoreBackoff>,
}

/// Desired state of an object.
pub(super) struct DesiredConfig {
    name: String,
    object: Value,
    content: Content,
}

impl DesiredConfig {
    pub(super) fn new<K: WebhookConfiguration + Serialize>(object: &K) -> Self {
        Self {
            name: object.meta().name.clone().unwrap_or_default(),
            content: Content::of(object),
            object: json!(object),
        }
    }
}

/// Action to take on an object.
#[derive(Debug, PartialEq, Eq)]
enum ConfigStep {
    Unchanged,
    Apply,
    /// Restore what another client reverted, with its field manager if known.
    Restore(Option<Box<str>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectOutcome {
    /// Already up to date.
    Unchanged,
    Written,
    /// Another client keeps reverting it: restore it at this time.
    Deferred(Instant),
}

/// Decides from the content last applied, desired and existing.
fn decide(
    applied: Option<&Content>,
    desired: &Content,
    existing: Option<(&Content, Option<&str>)>,
) -> ConfigStep {
    match existing {
        Some((content, _)) if content.satisfies(desired) => ConfigStep::Unchanged,
        Some((_, writer)) if applied == Some(desired) => {
            ConfigStep::Restore(writer.map(Into::into))
        }
        None if applied == Some(desired) => ConfigStep::Restore(None),
        Some(_) | None => ConfigStep::Apply,
    }
}

impl<K> WebhookConfigs<K>
where
    K: WebhookConfiguration
        + Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static,
{
    pub(super) fn new(client: Client, release: &str) -> Self {
        Self {
            client,
            release: release.to_owned(),
            store: Arc::default(),
            applied: Mutex::default(),
            restore_backoff: Mutex::default(),
        }
    }

    pub(super) fn watch(&self, metrics: &Arc<Metrics>) -> Watch<WebhookConfigurationRecord<K>> {
        Watch {
            api: Api::all(self.client.clone()),
            scope: WatchScope::Cluster,
            selector: Selector {
                labels: Some(MANAGED_BY_SELECTOR.into()),
                ..Selector::default()
            },
            served: None,
            sink: self.store.clone(),
            check: Readiness::default().check("webhook configurations"),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// Names of the objects of this release.
    pub(super) fn names(&self) -> Vec<String> {
        let all = self.store.store.keys().into_iter();
        let of_release = all.filter(|key| belongs_to_release(&self.release, &key.name));
        of_release.map(|key| key.name.to_string()).collect()
    }

    /// Reads the objects of this release from the API server, because the cache does not hold their whole content.
    ///
    /// # Errors
    /// If the API server rejects the request or fails.
    pub(super) async fn read_all(&self) -> Result<Vec<K>, String> {
        let api: Api<K> = Api::all(self.client.clone());
        let mut objects = Vec::new();
        for name in self.names() {
            let read = api.get_opt(&name).await;
            objects.extend(read.map_err(|error| format!("{} {name}: {error}", K::kind(&())))?);
        }
        Ok(objects)
    }

    /// Every `caBundle` in the objects of this release.
    pub(super) fn bundles(&self) -> Vec<Arc<[u8]>> {
        self.records_of_release()
            .into_iter()
            .flat_map(|record| record.bundles.to_vec())
            .collect()
    }

    pub(super) fn fail_closed_entries(&self) -> BTreeSet<Box<str>> {
        self.records_of_release()
            .into_iter()
            .flat_map(|record| record.fail_closed.to_vec())
            .collect()
    }

    /// Names of entries of this object that fail closed.
    pub(super) fn fail_closed_entries_of(&self, name: &str) -> Box<[Box<str>]> {
        let record = self.store.store.get(&Key::new("", name));
        record
            .map(|record| record.fail_closed.clone())
            .unwrap_or_default()
    }

    fn records_of_release(&self) -> Vec<Arc<WebhookConfigurationRecord<K>>> {
        let mut all = Vec::new();
        self.store.store.each(|record| all.push(Arc::clone(record)));
        all.retain(|record| belongs_to_release(&self.release, &record.metadata.key.name));
        all
    }

    /// Applies the object unless it is up to date.
    ///
    /// # Errors
    /// If the API server rejects the request or fails.
    pub(super) async fn apply(
        &self,
        desired: &DesiredConfig,
        context: &Context,
    ) -> Result<ObjectOutcome, String> {
        let name = &*desired.name;
        let existing = self.store.store.get(&Key::new("", name));
        let applied = self.applied.lock().get(name).cloned();
        let observed = existing
            .as_ref()
            .map(|existing| (&existing.content, existing.writer.as_deref()));
        let step = decide(applied.as_ref(), &desired.content, observed);
        if step == ConfigStep::Unchanged {
            self.applied
                .lock()
                .insert(desired.name.clone(), desired.content.clone());
            return Ok(ObjectOutcome::Unchanged);
        }
        let not_before = self.restore_backoff.lock().not_before(name, Instant::now());
        if let (ConfigStep::Restore(_), Some(at)) = (&step, not_before) {
            return Ok(ObjectOutcome::Deferred(at));
        }
        let written = self.write(desired).await?;
        // Update the store now: the watch may lag, and our own write must not count as a conflicting one.
        self.store.store.apply_response(&written);
        self.applied
            .lock()
            .insert(desired.name.clone(), desired.content.clone());
        if let ConfigStep::Restore(writer) = step {
            let pause = self
                .restore_backoff
                .lock()
                .record_restore(name, Instant::now());
            let text = restored_message(writer.as_deref(), pause);
            let object = reference::<K>(&written.record.metadata);
            context.metrics.config_restored(name);
            let events = &context.events;
            events.publish_about(object, EventReason::WebhookConfigurationRestored, &text);
        }
        Ok(ObjectOutcome::Written)
    }

    async fn write(
        &self,
        desired: &DesiredConfig,
    ) -> Result<Projected<WebhookConfigurationRecord<K>>, String> {
        let kind = K::kind(&());
        let name = &*desired.name;
        let write_error = |error: kube::Error| format!("{kind} {name}: {error}");
        let api: Api<Projected<WebhookConfigurationRecord<K>>> = Api::all(self.client.clone());
        let params = PatchParams::apply(manager::ADMISSION).force();
        let patch = Patch::Apply(&desired.object);
        let mut written = api
            .patch(name, &params, &patch)
            .await
            .map_err(write_error)?;
        if !written.record.content.satisfies(&desired.content) {
            // Server-side apply keeps what other field managers added, so replace the entries.
            let version = written.record.metadata.resource_version.to_string();
            let operations = vec![
                test(&["metadata", "resourceVersion"], json!(version)),
                replace(&["webhooks"], desired.object["webhooks"].clone()),
            ];
            let params = PatchParams {
                field_manager: Some(manager::ADMISSION.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::<()>::Json(JsonPatch(operations));
            written = api
                .patch(name, &params, &patch)
                .await
                .map_err(write_error)?;
        }
        let entries = desired.object["webhooks"].as_array().map_or(0, Vec::len);
        info!(%kind, name, entries, "webhook configuration applied");
        Ok(written)
    }
}

/// Matches `<release>-injector`, `<release>-injector-2`, …, `<release>-validator`.
fn belongs_to_release(release: &str, name: &str) -> bool {
    let rest = name
        .strip_prefix(release)
        .and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix("injector-");
        rest == "validator"
            || rest == "injector"
            || number.is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// Text of the Event about a restored object.
fn restored_message(writer: Option<&str>, pause: Duration) -> String {
    let mut text = match writer {
        Some(writer) => format!("restored after a change by {writer}"),
        None => "restored after it was deleted, or its entries were removed".to_owned(),
    };
    if !pause.is_zero() {
        text.push_str("; this happens repeatedly, so it is restored at increasing intervals, up to 5 minutes: find \
                       the client that changes it, and make it leave the object alone");
    }
    text
}

fn reference<K: Resource<DynamicType = ()>>(metadata: &Metadata) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(metadata.key.name.to_string()),
        uid: Some(metadata.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
