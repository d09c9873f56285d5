//! Records of `CustomResourceDefinition`s that the operator does not install.

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;

use super::condition::RawCondition;
use super::{Enqueue, Metadata, RawMetadata, Record};

/// A CRD, reduced to whether its kind is served.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdRecord {
    pub metadata: Metadata,
    /// Whether its condition `Established` is true.
    pub established: bool,
}

/// Decoded fields of a CRD.
#[derive(Deserialize)]
pub struct RawCrd<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow)]
    status: Option<RawStatus<'a>>,
}

#[derive(Deserialize)]
struct RawStatus<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

impl Record for CrdRecord {
    type Kind = CustomResourceDefinition;
    type Raw<'de> = RawCrd<'de>;

    fn project(raw: RawCrd<'_>) -> Self {
        let conditions = raw.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Self {
            established: conditions.any(|condition| condition.is("Established", "True")),
            metadata: raw.metadata.to_metadata(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::AllActors
    }
}

/// Any CRD, watched as metadata only, because it only triggers discovery (RES-6).
#[derive(Clone, Debug, PartialEq)]
pub struct CrdNameRecord {
    /// Metadata. The name is `<plural>.<group>`.
    pub metadata: Metadata,
}

/// Decoded metadata of a CRD.
#[derive(Deserialize)]
pub struct RawCrdName<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for CrdNameRecord {
    type Kind = CustomResourceDefinition;
    type Raw<'de> = RawCrdName<'de>;
    const METADATA_ONLY: bool = true;

    fn kind_name() -> Cow<'static, str> {
        "CustomResourceDefinition (metadata)".into()
    }

    fn project(RawCrdName { metadata }: RawCrdName<'_>) -> Self {
        Self {
            metadata: metadata.to_metadata(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}
