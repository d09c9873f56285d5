//! The record of a `CustomResourceDefinition` of kinds that others install.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;

use super::condition::RawCondition;
use super::{Concerns, Metadata, RawMetadata, Record};

/// A CRD, reduced to whether its kind can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// Whether the API server serves its kind.
    pub established: bool,
}

/// The decoded fields of a CRD.
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
            metadata: raw.metadata.keep(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn concerns(&self) -> Concerns {
        Concerns::Everybody
    }
}
