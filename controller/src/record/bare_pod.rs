//! The record of a pod that carries no actor's label, in a namespace with bindings.

use asya_shared::names::{annotation, label};
use asya_shared::resolve::{self, PodMatch};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::{Enqueue, Metadata, RawMetadata, Record};

/// A pod without our containers, seen by its metadata only (BIND-62).
#[derive(Clone, Debug, PartialEq)]
pub struct UninjectedPodRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// When it was made, to the second.
    pub created: Option<Time>,
    /// All labels.
    pub labels: Labels,
    /// Why the webhook left it alone.
    pub not_injected: Option<Box<str>>,
}

/// Labels of a pod, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The labels in these metadata.
    pub(super) fn of(raw: &RawMetadata<'_>) -> Self {
        let all = raw.labels.iter();
        Self(
            all.map(|(key, value)| (key.as_ref().into(), value.as_ref().into()))
                .collect(),
        )
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key));
        self.0.get(at.ok()?).map(|(_, value)| &**value)
    }

    /// Whether a pod with these labels and this owner is one of a target's.
    pub fn match_with(&self, metadata: &Metadata, pods: &PodMatch) -> bool {
        let owner = metadata.controller.as_ref();
        let owner = owner.map(|owner| resolve::Controller {
            api_version: &owner.api_version,
            kind: &owner.kind,
            name: &owner.name,
        });
        pods.matches(|key| self.get(key), owner.as_ref())
    }
}

/// A record that tells of which target a pod is.
pub trait PodOfTarget: Record {
    /// Whether it is one of a target's.
    fn is_one_of(&self, pods: &PodMatch) -> bool;
}

impl PodOfTarget for UninjectedPodRecord {
    fn is_one_of(&self, pods: &PodMatch) -> bool {
        self.labels.match_with(&self.metadata, pods)
    }
}

impl UninjectedPodRecord {
    /// Whether its user wants no sidecar.
    pub fn opts_out(&self) -> bool {
        self.labels.get(label::INJECT) == Some("false")
    }
}

/// The decoded fields of such a pod.
#[derive(Deserialize)]
pub struct RawBarePod<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for UninjectedPodRecord {
    type Kind = Pod;
    type Raw<'de> = RawBarePod<'de>;
    const METADATA_ONLY: bool = true;

    fn project(raw: RawBarePod<'_>) -> Self {
        Self {
            metadata: raw.metadata.keep(),
            labels: Labels::of(&raw.metadata),
            not_injected: raw.metadata.annotation(annotation::NOT_INJECTED),
            created: raw.metadata.creation_timestamp,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Only an index of bindings knows.
    fn concerns(&self) -> Enqueue {
        Enqueue::Nobody
    }
}
