//! Metadata that every record keeps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use asya_shared::names::{MANAGED_BY, annotation, label, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::Key;
use super::fingerprint::{Fingerprint, OwnedFields, RawManagedFields};

/// Object metadata kept in every record.
///
/// Equality ignores the resource version and the managed-by label.
#[derive(Clone, Debug)]
pub struct Metadata {
    pub key: Key,
    /// Distinguishes an object from an earlier one with the same name.
    pub uid: Box<str>,
    /// Orders the versions of an object; 0 if the server's value is not a number.
    pub resource_version: u64,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    /// Controller owner reference.
    pub controller: Option<Controller>,
    /// Whether it has the managed-by label that our watches select by.
    pub managed: bool,
}

impl Metadata {
    /// Uid of the controller owner, if it differs from `uid`.
    pub fn other_owner(&self, uid: &str) -> Option<&str> {
        let owner = self.controller.as_ref().map(|owner| &*owner.uid);
        owner.filter(|owner| *owner != uid)
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.uid, self.deleting, &self.controller)
            == (&other.key, &other.uid, other.deleting, &other.controller)
    }
}

/// Controller owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// Traces of our last apply on the object, which suffice to detect drift without keeping the content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastApplied {
    /// Hash of the object as last applied.
    pub hash: Option<Box<str>>,
    /// Fingerprint of the fields that we own.
    pub fingerprint: Option<Fingerprint>,
    /// Index in `managedFields` of the previous operator's entry, until we own its fields (WRK-7).
    pub go_operator_entry: Option<usize>,
}

/// `metadata`, borrowed from the API server's response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawMetadata<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    /// Incremented by the API server on each spec change.
    #[serde(default)]
    pub generation: i64,
    pub creation_timestamp: Option<Time>,
    /// Deletion time, if it is being deleted.
    pub deletion_timestamp: Option<Time>,
    #[serde(default)]
    pub labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(default)]
    pub annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(default)]
    pub finalizers: Vec<Box<str>>,
    #[serde(borrow, default)]
    owner_references: Vec<RawOwner<'a>>,
    #[serde(borrow, default)]
    managed_fields: RawManagedFields<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOwner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(default)]
    controller: bool,
}

impl RawMetadata<'_> {
    /// Copies the fields that every record keeps.
    pub fn to_metadata(&self) -> Metadata {
        Metadata {
            key: Key::new(&self.namespace, &self.name),
            uid: self.uid.as_ref().into(),
            resource_version: self.resource_version.parse().unwrap_or_default(),
            deleting: self.deletion_timestamp.is_some(),
            managed: self.label(label::MANAGED_BY) == Some(MANAGED_BY),
            controller: self.controller().map(|owner| Controller {
                api_version: owner.api_version.as_ref().into(),
                kind: owner.kind.as_ref().into(),
                name: owner.name.as_ref().into(),
                uid: owner.uid.as_ref().into(),
            }),
        }
    }

    /// Whether an owner reference names a controller.
    pub fn has_controller(&self) -> bool {
        self.controller().is_some()
    }

    fn controller(&self) -> Option<&RawOwner<'_>> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Whether any owner reference has this kind.
    pub fn is_owned_by(&self, kind: &str) -> bool {
        self.owner_references.iter().any(|owner| owner.kind == kind)
    }

    /// Uids of all owners.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.owner_references.iter().map(|owner| &*owner.uid)
    }

    pub fn annotation(&self, name: &str) -> Option<Box<str>> {
        self.annotations
            .get(name)
            .map(|value| value.as_ref().into())
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(AsRef::as_ref)
    }

    /// Fields that `manager` owns through server-side apply.
    pub fn applied_by(&self, manager: &str) -> Option<OwnedFields> {
        self.managed_fields.applied_by(manager)
    }

    /// Whether a matching field manager wrote to the object, excluding subresources.
    pub fn is_written_by(&self, manager: impl Fn(&str) -> bool) -> bool {
        self.managed_fields.is_written_by(manager)
    }

    /// Traces of the last apply by `manager`.
    pub fn last_applied(&self, manager: &str) -> LastApplied {
        let fingerprint = self.applied_by(manager).map(|fields| fields.fingerprint);
        LastApplied {
            hash: self.annotation(annotation::APPLIED_HASH),
            fingerprint,
            go_operator_entry: self
                .managed_fields
                .updated_by(manager::GO_OPERATOR)
                .filter(|_| fingerprint.is_none()),
        }
    }
}
