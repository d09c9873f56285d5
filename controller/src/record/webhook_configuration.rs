//! Record of one of our webhook configurations: a hash of its content, and the few fields read elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use asya_shared::hash;
use asya_shared::names::{label, manager};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Enqueue, Key, Metadata, Record};

/// Webhook configuration kinds.
pub trait WebhookConfiguration: Resource<DynamicType = ()> {
    fn entries(&self) -> Vec<WebhookEntry<'_>>;
}

/// One of a configuration's webhooks.
#[derive(Debug)]
pub struct WebhookEntry<'a> {
    name: &'a str,
    failure_policy: Option<&'a str>,
    client_config: &'a WebhookClientConfig,
    /// The whole entry.
    json: Value,
}

macro_rules! configuration {
    ($kind:ident) => {
        impl WebhookConfiguration for $kind {
            fn entries(&self) -> Vec<WebhookEntry<'_>> {
                let all = self.webhooks.iter().flatten();
                all.map(|webhook| WebhookEntry {
                    name: &webhook.name,
                    failure_policy: webhook.failure_policy.as_deref(),
                    client_config: &webhook.client_config,
                    json: json!(webhook),
                })
                .collect()
            }
        }
    };
}

configuration!(MutatingWebhookConfiguration);
configuration!(ValidatingWebhookConfiguration);

/// The content that we write, without metadata that others add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Hash of everything except `terms`.
    rest: Box<str>,
    /// Namespace selector terms by entry name.
    terms: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
}

impl Content {
    /// Extracts the content of an object.
    pub fn of<K: WebhookConfiguration>(object: &K) -> Self {
        let metadata = object.meta();
        let labels = metadata.labels.iter().flatten();
        let own_labels = [
            label::MANAGED_BY,
            label::PART_OF,
            label::COMPONENT,
            label::ENFORCER_DISABLED,
        ];
        let labels: Vec<_> = labels
            .filter(|(key, _)| own_labels.contains(&key.as_str()))
            .collect();
        let owners = metadata.owner_references.iter().flatten();
        let roles = owners.filter(|owner| owner.kind == "ClusterRole");
        let roles: Vec<_> = roles.map(|owner| (&owner.name, &owner.uid)).collect();
        // Sort the entries, because the API server may reorder them.
        let mut entries: Vec<_> = object
            .entries()
            .into_iter()
            .map(|entry| (entry.name, entry.json))
            .collect();
        entries.sort_by_key(|(name, _)| *name);
        let mut terms = BTreeMap::new();
        for (name, entry) in &mut entries {
            let entry = entry.as_object_mut();
            let selector = entry.and_then(|entry| entry.remove("namespaceSelector"));
            terms.insert((*name).into(), terms_of(&selector.unwrap_or_default()));
        }
        Self {
            rest: hash::of_value(&json!([labels, roles, entries])).into(),
            terms,
        }
    }

    /// Whether it holds the `desired` content. Extra namespace selector terms, as AKS' admissions enforcer adds them,
    /// are accepted: all terms must match, so they only exclude more namespaces.
    pub fn satisfies(&self, desired: &Self) -> bool {
        self.rest == desired.rest
            && desired.terms.iter().all(|(name, terms)| {
                let actual = self.terms.get(name);
                actual.is_some_and(|actual| actual.is_superset(terms))
            })
    }
}

/// Labels and expressions of a label selector, each as text.
fn terms_of(selector: &Value) -> BTreeSet<Box<str>> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| json!([key, value]));
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    let all = labels.chain(expressions.cloned());
    all.map(|term| term.to_string().into()).collect()
}

/// Webhook configuration that we own.
pub struct WebhookConfigurationRecord<K> {
    pub metadata: Metadata,
    pub content: Content,
    /// Distinct `caBundle`s of its entries.
    pub bundles: Box<[Arc<[u8]>]>,
    /// Names of entries with failure policy `Fail`.
    pub fail_closed: Box<[Box<str>]>,
    /// Other field manager that wrote to it last.
    pub writer: Option<Box<str>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for WebhookConfigurationRecord<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ConfigurationRecord");
        debug.field("metadata", &self.metadata);
        debug
            .field("content", &self.content)
            .finish_non_exhaustive()
    }
}

impl<K> PartialEq for WebhookConfigurationRecord<K> {
    fn eq(&self, other: &Self) -> bool {
        (&self.metadata, &self.content) == (&other.metadata, &other.content)
    }
}

/// The whole object, because we own all of its content and there are only a few of them.
pub struct Whole<K>(K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Whole<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(deserializer).map(Self)
    }
}

impl<K> Record for WebhookConfigurationRecord<K>
where
    K: WebhookConfiguration
        + Resource<Scope = ClusterResourceScope>
        + for<'de> Deserialize<'de>
        + 'static,
{
    type Kind = K;
    type Raw<'de> = Whole<K>;

    fn project(Whole(object): Whole<K>) -> Self {
        let mut bundles: Vec<Arc<[u8]>> = Vec::new();
        let mut fail_closed: Vec<Box<str>> = Vec::new();
        for entry in object.entries() {
            let bundle = entry
                .client_config
                .ca_bundle
                .as_ref()
                .map_or(&[][..], |bundle| &bundle.0);
            if bundles.iter().all(|known| **known != *bundle) {
                bundles.push(bundle.into());
            }
            if entry.failure_policy == Some("Fail") {
                fail_closed.push(entry.name.into());
            }
        }
        Self {
            content: Content::of(&object),
            bundles: bundles.into(),
            fail_closed: fail_closed.into(),
            writer: other_field_manager(object.meta()),
            metadata: metadata(object.meta()),
            kind: PhantomData,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::AllActors
    }
}

fn metadata(meta: &ObjectMeta) -> Metadata {
    let version = meta.resource_version.as_deref().unwrap_or_default();
    Metadata {
        key: Key::new("", meta.name.as_deref().unwrap_or_default()),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        resource_version: version.parse().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        controller: None,
        managed: false,
    }
}

fn other_field_manager(meta: &ObjectMeta) -> Option<Box<str>> {
    let entries = meta.managed_fields.iter().flatten();
    let others = entries.filter(|entry| entry.manager.as_deref() != Some(manager::ADMISSION));
    let newest = others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    newest.manager.as_deref().map(Into::into)
}
