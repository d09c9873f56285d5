//! The record of a `TriggerAuthentication` that we created, or one of a name that we need.

use std::borrow::Cow;

use asya_shared::names::{annotation, label, manager};
use asya_shared::scaling::{KEDA_GROUP, KEDA_VERSION};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::{Concerns, Fingerprint, Key, Metadata, RawMetadata, Record};

/// A `TriggerAuthentication`: its content is judged by hash and ownership, not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerAuthenticationRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// The actor that it belongs to by label; its controller ownerReference decides.
    pub actor: Option<Box<str>>,
    /// Hash of the object as it was last sent.
    pub applied_hash: Option<Box<str>>,
    /// What we own of it.
    pub fingerprint: Option<Fingerprint>,
}

/// The kind; there are no values of it.
#[derive(Debug)]
pub enum TriggerAuthentication {}

impl Resource for TriggerAuthentication {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "TriggerAuthentication".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        KEDA_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        KEDA_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "triggerauthentications".into()
    }

    fn meta(&self) -> &ObjectMeta {
        match *self {}
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match *self {}
    }
}

/// The decoded fields of a `TriggerAuthentication`.
#[derive(Deserialize)]
pub struct RawTriggerAuthentication<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for TriggerAuthenticationRecord {
    type Kind = TriggerAuthentication;
    type Raw<'de> = RawTriggerAuthentication<'de>;

    fn project(raw: RawTriggerAuthentication<'_>) -> Self {
        let applied = raw.metadata.applied_by(manager::SCALED_OBJECT);
        Self {
            metadata: raw.metadata.keep(),
            actor: raw.metadata.label(label::ACTOR).map(Into::into),
            applied_hash: raw.metadata.annotation(annotation::APPLIED_HASH),
            fingerprint: applied.map(|fields| fields.fingerprint),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn concerns(&self) -> Concerns {
        let namespace = &self.metadata.key.namespace;
        match (&self.metadata.controller, &self.actor) {
            (Some(owner), _) if &*owner.kind == "AsyncActor" => {
                Concerns::Actor(Key::new(namespace, &owner.name))
            }
            (_, Some(actor)) => Concerns::Actor(Key::new(namespace, actor)),
            _ => Concerns::Nobody,
        }
    }
}

#[cfg(test)]
mod tests;
