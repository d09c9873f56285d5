//! Record of the `ClusterRole` that owns the webhook configurations.

use k8s_openapi::api::rbac::v1::ClusterRole;
use serde::Deserialize;

use super::{Enqueue, Metadata, RawMetadata, Record};

/// Annotation that Helm sets on the objects of a release.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// The owner `ClusterRole`, watched as metadata only.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerRoleRecord {
    pub metadata: Metadata,
    pub managed_by_helm: bool,
    /// Whether a Namespace owns it, so that it is garbage-collected with that namespace.
    pub owned_by_namespace: bool,
}

/// Decoded metadata of the owner `ClusterRole`.
#[derive(Deserialize)]
pub struct RawOwnerRole<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for OwnerRoleRecord {
    type Kind = ClusterRole;
    type Raw<'de> = RawOwnerRole<'de>;
    const METADATA_ONLY: bool = true;

    fn project(raw: RawOwnerRole<'_>) -> Self {
        Self {
            metadata: raw.metadata.to_metadata(),
            managed_by_helm: raw.metadata.annotation(HELM_RELEASE).is_some(),
            owned_by_namespace: raw.metadata.is_owned_by("Namespace"),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::AllActors
    }
}
