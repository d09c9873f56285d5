//! The part of `metadata` that every record keeps.

use std::borrow::Cow;
use std::collections::BTreeMap;

use asya_shared::names::{MANAGED_BY, annotation, label, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::Key;
use super::fingerprint::{Applied, Fingerprint, RawManagedFields};

/// What every record keeps of an object's metadata.
///
/// Two of them are equal when they differ in nothing but the version.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// Namespace and name.
    pub key: Key,
    /// Tells an object from an earlier one of its name.
    pub uid: Box<str>,
    /// Orders the versions of an object; 0 where the server's text is not a number.
    pub resource_version: u64,
    /// Whether a deletion has begun.
    pub deleting: bool,
    /// The owner that is marked as controller.
    pub controller: Option<Controller>,
    /// Whether it bears the label by which the watches select the objects of actors.
    pub labelled: bool,
}

impl Metadata {
    /// The uid of the controller, if it is not `uid`.
    pub fn owner_before(&self, uid: &str) -> Option<&str> {
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

/// A controller ownerReference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// API group and version.
    pub api_version: Box<str>,
    /// Kind of the owner.
    pub kind: Box<str>,
    /// Name of the owner.
    pub name: Box<str>,
    /// Uid of the owner.
    pub uid: Box<str>,
}

/// What an object shows of our last apply: its content is judged by this, not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastApplied {
    /// Hash of the object as it was last sent.
    pub hash: Option<Box<str>>,
    /// What we own of it.
    pub fingerprint: Option<Fingerprint>,
    /// Where the entry of the former operator stands in `managedFields`, as long as its fields are not ours (WRK-7).
    pub former: Option<usize>,
}

/// `metadata`, borrowed from the API server's text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawMetadata<'a> {
    /// Name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    /// Rises with each change of the spec.
    #[serde(default)]
    pub generation: i64,
    /// When the object was made.
    pub creation_timestamp: Option<Time>,
    /// When its deletion began.
    pub deletion_timestamp: Option<Time>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// Annotations.
    #[serde(default)]
    pub annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// Finalizers.
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
    /// The part that every record keeps.
    pub fn keep(&self) -> Metadata {
        Metadata {
            key: Key::new(&self.namespace, &self.name),
            uid: self.uid.as_ref().into(),
            resource_version: self.resource_version.parse().unwrap_or_default(),
            deleting: self.deletion_timestamp.is_some(),
            labelled: self.label(label::MANAGED_BY) == Some(MANAGED_BY),
            controller: self
                .owner_references
                .iter()
                .find(|owner| owner.controller)
                .map(|owner| Controller {
                    api_version: owner.api_version.as_ref().into(),
                    kind: owner.kind.as_ref().into(),
                    name: owner.name.as_ref().into(),
                    uid: owner.uid.as_ref().into(),
                }),
        }
    }

    /// Whether an object of this kind is among its owners.
    pub fn is_owned_by(&self, kind: &str) -> bool {
        self.owner_references.iter().any(|owner| owner.kind == kind)
    }

    /// An annotation's text.
    pub fn annotation(&self, name: &str) -> Option<Box<str>> {
        self.annotations
            .get(name)
            .map(|value| value.as_ref().into())
    }

    /// A label's text.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(AsRef::as_ref)
    }

    /// What `manager` owns by server-side apply.
    pub fn applied_by(&self, manager: &str) -> Option<Applied> {
        self.managed_fields.applied_by(manager)
    }

    /// Whether one of these field managers wrote to the object itself.
    pub fn is_written_by(&self, manager: impl Fn(&str) -> bool) -> bool {
        self.managed_fields.is_written_by(manager)
    }

    /// What is left of the last apply by `manager`.
    pub fn last_applied(&self, manager: &str) -> LastApplied {
        let fingerprint = self.applied_by(manager).map(|fields| fields.fingerprint);
        LastApplied {
            hash: self.annotation(annotation::APPLIED_HASH),
            fingerprint,
            former: self
                .managed_fields
                .updated_by(manager::FORMER_OPERATOR)
                .filter(|_| fingerprint.is_none()),
        }
    }
}
