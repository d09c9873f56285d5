//! Webhook configurations of one kind: the cache that a watch fills, and our writes.

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

use super::pace::Pace;
use crate::cluster::patch::{replace, test};
use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::{Selector, Watch, WatchSink};
use crate::context::Context;
use crate::record::{
    Configuration, ConfigurationRecord, Content, Enqueue, Key, Metadata, Projected, Record,
};
use crate::telemetry::events::EventReason;
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;

/// Selects the objects that the operator manages, of any release.
const OURS: &str = "app.kubernetes.io/managed-by=asya-operator";

/// Webhook configurations of one kind.
pub(super) struct Objects<K> {
    client: Client,
    /// Prefix of the configurations' names.
    release: String,
    store: Arc<Kept<K>>,
    /// Content last applied, by name.
    applied: Mutex<BTreeMap<String, Content>>,
    pace: Mutex<Pace>,
}

/// Sink of the watch: the store, and whether its first list is complete.
struct Kept<K> {
    store: Store<ConfigurationRecord<K>>,
    listed: std::sync::atomic::AtomicBool,
}

/// Desired state of an object.
pub(super) struct Wanted {
    name: String,
    object: Value,
    content: Content,
}

impl Wanted {
    pub(super) fn new<K: Configuration + Serialize>(object: &K) -> Self {
        Self {
            name: object.meta().name.clone().unwrap_or_default(),
            content: Content::of(object),
            object: json!(object),
        }
    }
}

/// Action to take on an object.
#[derive(Debug, PartialEq, Eq)]
enum EntryStep {
    Keep,
    Apply,
    /// Restore what another client reverted, with its field manager if known.
    Heal(Option<Box<str>>),
}

/// Outcome of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectOutcome {
    /// Already up to date.
    Kept,
    Wrote,
    /// Another client keeps reverting it: restore it at this time.
    Later(Instant),
}

/// Decides from the content last applied, desired and live.
fn decide(
    applied: Option<&Content>,
    wanted: &Content,
    live: Option<(&Content, Option<&str>)>,
) -> EntryStep {
    match live {
        Some((content, _)) if content.fulfils(wanted) => EntryStep::Keep,
        Some((_, writer)) if applied == Some(wanted) => EntryStep::Heal(writer.map(Into::into)),
        None if applied == Some(wanted) => EntryStep::Heal(None),
        Some(_) | None => EntryStep::Apply,
    }
}

impl<K> Objects<K>
where
    K: Configuration
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
            store: Arc::new(Kept {
                store: Store::default(),
                listed: false.into(),
            }),
            applied: Mutex::default(),
            pace: Mutex::default(),
        }
    }

    pub(super) fn watch(&self, metrics: &Arc<Metrics>) -> Watch<ConfigurationRecord<K>> {
        Watch {
            api: Api::all(self.client.clone()),
            scope: None,
            selector: Selector {
                labels: Some(OURS.into()),
                ..Selector::default()
            },
            served: None,
            store: self.store.clone(),
            gate: Readiness::default().gate("webhook configurations"),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.store.listed.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Names of the objects of this release.
    pub(super) fn names(&self) -> Vec<String> {
        let all = self.store.store.keys().into_iter();
        let ours = all.filter(|key| is_of(&self.release, &key.name));
        ours.map(|key| key.name.to_string()).collect()
    }

    /// Every `caBundle` in the objects of this release.
    pub(super) fn bundles(&self) -> Vec<Arc<[u8]>> {
        self.ours()
            .into_iter()
            .flat_map(|it| it.bundles.to_vec())
            .collect()
    }

    /// Names of entries that fail closed.
    pub(super) fn failing(&self) -> BTreeSet<Box<str>> {
        self.ours()
            .into_iter()
            .flat_map(|it| it.failing.to_vec())
            .collect()
    }

    fn ours(&self) -> Vec<Arc<ConfigurationRecord<K>>> {
        let mut all = Vec::new();
        self.store.store.each(|record| all.push(Arc::clone(record)));
        all.retain(|record| is_of(&self.release, &record.metadata.key.name));
        all
    }

    /// Applies the object unless it is up to date.
    ///
    /// # Errors
    /// If the API server refuses or fails.
    pub(super) async fn apply(
        &self,
        wanted: &Wanted,
        context: &Context,
    ) -> Result<ObjectOutcome, String> {
        let name = &*wanted.name;
        let live = self.store.store.get(&Key::new("", name));
        let applied = self.applied.lock().get(name).cloned();
        let seen = live
            .as_ref()
            .map(|live| (&live.content, live.writer.as_deref()));
        let step = decide(applied.as_ref(), &wanted.content, seen);
        if step == EntryStep::Keep {
            self.applied
                .lock()
                .insert(wanted.name.clone(), wanted.content.clone());
            return Ok(ObjectOutcome::Kept);
        }
        let not_before = self.pace.lock().not_before(name, Instant::now());
        if let (EntryStep::Heal(_), Some(at)) = (&step, not_before) {
            return Ok(ObjectOutcome::Later(at));
        }
        let written = self.write(wanted).await?;
        // Update the store now: the watch may lag, and our own write must not look like a conflicting one.
        self.store.store.wrote(&written);
        self.applied
            .lock()
            .insert(wanted.name.clone(), wanted.content.clone());
        if let EntryStep::Heal(writer) = step {
            let pause = self.pace.lock().restored(name, Instant::now());
            let text = restored(writer.as_deref(), pause);
            let about = reference::<K>(&written.record.metadata);
            context.metrics.config_healed(name);
            let events = &context.events;
            events.tell_of(about, EventReason::WebhookConfigurationRestored, &text);
        }
        Ok(ObjectOutcome::Wrote)
    }

    async fn write(&self, wanted: &Wanted) -> Result<Projected<ConfigurationRecord<K>>, String> {
        let (kind, name) = (K::kind(&()), &*wanted.name);
        let failed = |error: kube::Error| format!("{kind} {name}: {error}");
        let api: Api<Projected<ConfigurationRecord<K>>> = Api::all(self.client.clone());
        let params = PatchParams::apply(manager::ADMISSION).force();
        let patch = Patch::Apply(&wanted.object);
        let mut written = api.patch(name, &params, &patch).await.map_err(failed)?;
        if !written.record.content.fulfils(&wanted.content) {
            // Server-side apply keeps what other field managers added, so replace the entries.
            let version = written.record.metadata.resource_version.to_string();
            let operations = vec![
                test(&["metadata", "resourceVersion"], json!(version)),
                replace(&["webhooks"], wanted.object["webhooks"].clone()),
            ];
            let params = PatchParams {
                field_manager: Some(manager::ADMISSION.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::<()>::Json(JsonPatch(operations));
            written = api.patch(name, &params, &patch).await.map_err(failed)?;
        }
        let entries = wanted.object["webhooks"].as_array().map_or(0, Vec::len);
        info!(%kind, name, entries, "webhook configuration applied");
        Ok(written)
    }
}

/// Matches `<release>-injector`, `<release>-injector-2`, …, `<release>-validator`.
fn is_of(release: &str, name: &str) -> bool {
    let rest = name
        .strip_prefix(release)
        .and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| {
        let number = rest.strip_prefix("injector-");
        rest == "validator"
            || rest == "injector"
            || number.is_some_and(|it| it.parse::<u32>().is_ok())
    })
}

/// Text of the Event about a restored object.
fn restored(writer: Option<&str>, pause: Duration) -> String {
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

impl<K> WatchSink<ConfigurationRecord<K>> for Kept<K>
where
    ConfigurationRecord<K>: Record,
{
    fn relisting(&self, scope: &Scope) {
        self.store.relisting(scope);
    }

    fn show(&self, scope: &Scope, seen: &Projected<ConfigurationRecord<K>>) -> Vec<Enqueue> {
        self.store.show(scope, seen)
    }

    fn removed(&self, scope: &Scope, seen: &Projected<ConfigurationRecord<K>>) -> Vec<Enqueue> {
        self.store.removed(scope, seen)
    }

    /// The first list triggers a reconcile even if it is empty.
    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let gone = self.store.relisted(scope);
        let first = !self.listed.swap(true, std::sync::atomic::Ordering::AcqRel);
        gone.into_iter()
            .chain(first.then_some(Enqueue::Everybody))
            .collect()
    }
}

#[cfg(test)]
mod tests;
