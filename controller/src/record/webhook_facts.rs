//! Record of the `ConfigMap` with the facts that only the controller knows, which the webhook reads (ADM-7).

use std::borrow::Cow;
use std::collections::BTreeMap;

use asya_shared::admission::facts::FACTS_KEY;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

use super::{Enqueue, Metadata, RawMetadata, Record};

/// The facts as published, and their owners.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookFactsRecord {
    pub metadata: Metadata,
    /// The entry that the operator writes. Others may add entries of their own.
    pub facts: Option<Box<str>>,
    /// Uids of all owners.
    pub owners: Box<[Box<str>]>,
}

/// Decoded fields of the `ConfigMap`.
#[derive(Deserialize)]
pub struct RawWebhookFacts<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow, default)]
    data: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

impl Record for WebhookFactsRecord {
    type Kind = ConfigMap;
    type Raw<'de> = RawWebhookFacts<'de>;

    fn kind_name() -> Cow<'static, str> {
        "ConfigMap of the webhook's facts".into()
    }

    fn project(raw: RawWebhookFacts<'_>) -> Self {
        Self {
            metadata: raw.metadata.to_metadata(),
            facts: raw.data.get(FACTS_KEY).map(|facts| facts.as_ref().into()),
            owners: raw.metadata.owners().map(Into::into).collect(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::AllActors
    }
}
