//! Record of the `ClusterRole` that owns the webhook configurations.

use k8s_openapi::api::rbac::v1::ClusterRole;
use serde::Deserialize;

use super::{Enqueue, Metadata, RawMetadata, Record};

/// Annotation that Helm sets on what it installs.
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// The anchor, watched as metadata only.
#[derive(Clone, Debug, PartialEq)]
pub struct AnchorRecord {
    pub metadata: Metadata,
    /// Whether Helm installed it.
    pub is_of_helm: bool,
    /// Whether a Namespace owns it, so that it is garbage-collected with that namespace.
    pub goes_with_namespace: bool,
}

/// Decoded metadata of the anchor.
#[derive(Deserialize)]
pub struct RawAnchor<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for AnchorRecord {
    type Kind = ClusterRole;
    type Raw<'de> = RawAnchor<'de>;
    const METADATA_ONLY: bool = true;

    fn project(raw: RawAnchor<'_>) -> Self {
        Self {
            metadata: raw.metadata.keep(),
            is_of_helm: raw.metadata.annotation(HELM_RELEASE).is_some(),
            goes_with_namespace: raw.metadata.is_owned_by("Namespace"),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn concerns(&self) -> Enqueue {
        Enqueue::Everybody
    }
}
