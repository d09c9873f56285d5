//! Record of a pod without an actor label, in a namespace with bindings.

use asya_shared::names::{annotation, label};
use asya_shared::resolve::{self, PodMatch};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

use super::{Metadata, RawMetadata, Record};

/// Pod without our containers, watched as metadata only (BIND-62).
#[derive(Clone, Debug, PartialEq)]
pub struct UninjectedPodRecord {
    pub metadata: Metadata,
    /// Creation time, to the second.
    pub created: Option<Time>,
    pub labels: Labels,
    /// Why the webhook did not inject the pod.
    pub not_injected: Option<Box<str>>,
}

/// Pod labels, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Copies the labels of an object.
    pub(super) fn of(raw: &RawMetadata<'_>) -> Self {
        let all = raw.labels.iter();
        Self(
            all.map(|(key, value)| (key.as_ref().into(), value.as_ref().into()))
                .collect(),
        )
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key));
        self.0.get(at.ok()?).map(|(_, value)| &**value)
    }

    /// Whether a pod with these labels and this owner belongs to the target.
    pub fn match_target(&self, metadata: &Metadata, pods: &PodMatch) -> bool {
        pods.matches(|key| self.get(key), owner_of(metadata).as_ref())
    }

    /// The names under which targets find a pod with these labels and this owner.
    pub fn lookup_names<'p>(&'p self, metadata: &'p Metadata) -> Vec<&'p str> {
        resolve::lookup_names_of_pod(|key| self.get(key), owner_of(metadata).as_ref())
    }
}

fn owner_of(metadata: &Metadata) -> Option<resolve::Controller<'_>> {
    let owner = metadata.controller.as_ref()?;
    Some(resolve::Controller {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
    })
}

/// Record of a pod that can be matched to a target.
pub trait TargetPod: Record {
    /// Whether the pod belongs to the target with this match.
    fn is_one_of(&self, pods: &PodMatch) -> bool;
    /// The names under which targets find it (`PodMatch::lookup_names`).
    fn lookup_names(&self) -> Vec<&str>;
}

impl TargetPod for UninjectedPodRecord {
    fn is_one_of(&self, pods: &PodMatch) -> bool {
        self.labels.match_target(&self.metadata, pods)
    }

    fn lookup_names(&self) -> Vec<&str> {
        self.labels.lookup_names(&self.metadata)
    }
}

impl UninjectedPodRecord {
    /// Whether the user opts out of injection.
    pub fn opts_out(&self) -> bool {
        self.labels.get(label::INJECT) == Some("false")
    }
}

/// Decoded fields of the pod.
#[derive(Deserialize)]
pub struct RawUninjectedPod<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for UninjectedPodRecord {
    type Kind = Pod;
    type Raw<'de> = RawUninjectedPod<'de>;
    const METADATA_ONLY: bool = true;

    fn project(raw: RawUninjectedPod<'_>) -> Self {
        Self {
            metadata: raw.metadata.to_metadata(),
            labels: Labels::of(&raw.metadata),
            not_injected: raw.metadata.annotation(annotation::NOT_INJECTED),
            created: raw.metadata.creation_timestamp,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
