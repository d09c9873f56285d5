//! Record of an object of a foreign kind: a binding's target, one of its owners or one of its dependents.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::ApiResource;
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};

use super::{Metadata, Projected, RawMetadata, Record};

/// Foreign object, watched as metadata only (BIND-61).
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignRecord {
    pub metadata: Metadata,
    /// Hash of generation and labels: it changes with spec and labels, but not with status.
    pub change_hash: u64,
}

/// Decoded metadata of a foreign object.
#[derive(Deserialize)]
pub struct RawForeign<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for ForeignRecord {
    type Kind = Foreign;
    type Raw<'de> = RawForeign<'de>;
    const METADATA_ONLY: bool = true;

    fn project(RawForeign { metadata }: RawForeign<'_>) -> Self {
        let mut change_hash = DefaultHasher::new();
        metadata.generation.hash(&mut change_hash);
        metadata.labels.hash(&mut change_hash);
        Self {
            metadata: metadata.to_metadata(),
            change_hash: change_hash.finish(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Placeholder kind. The actual kind is known only at run time, and carried by the [`ApiResource`] of the watch.
#[derive(Debug)]
pub enum Foreign {}

impl Resource for Foreign {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Foreign".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn meta(&self) -> &ObjectMeta {
        match *self {}
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match *self {}
    }
}

/// Object of a watch event, of a kind known only from discovery.
#[derive(Clone, Debug)]
pub struct ProjectedForeign(Projected<ForeignRecord>);

impl From<ProjectedForeign> for Projected<ForeignRecord> {
    fn from(projected: ProjectedForeign) -> Self {
        projected.0
    }
}

impl<'de> Deserialize<'de> for ProjectedForeign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Projected::deserialize(deserializer).map(Self)
    }
}

impl Resource for ProjectedForeign {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
