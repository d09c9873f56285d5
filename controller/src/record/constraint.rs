//! Records of the admission constraints on pods: quotas, `LimitRange`s, and the namespace labels that Pod Security and
//! policies select on (SAFE-4, SAFE-6).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use asya_shared::inject::{default_limits, required_limits};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, ResourceQuota};
use serde::Deserialize;
use serde_json::Value;

use super::{Metadata, RawMetadata, Record};

/// A `ResourceQuota`, without its usage.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaRecord {
    metadata: Metadata,
    spec: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LimitRangeRecord {
    metadata: Metadata,
    spec: Value,
}

/// Labels of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceRecord {
    metadata: Metadata,
    labels: BTreeMap<Box<str>, Box<str>>,
}

/// Decoded fields of a quota or a `LimitRange`.
#[derive(Deserialize)]
pub struct RawConstraint<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(default)]
    spec: Value,
}

/// Decoded fields of a namespace.
#[derive(Deserialize)]
pub struct RawNamespace<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl QuotaRecord {
    /// Resources that every container must set a limit for.
    pub fn limits(&self) -> BTreeSet<Box<str>> {
        required_limits(&self.spec)
    }
}

impl LimitRangeRecord {
    /// Resources with a default limit for containers.
    pub fn defaults(&self) -> BTreeSet<Box<str>> {
        default_limits(&self.spec)
    }
}

impl Record for QuotaRecord {
    type Kind = ResourceQuota;
    type Raw<'de> = RawConstraint<'de>;

    fn project(raw: RawConstraint<'_>) -> Self {
        Self {
            metadata: raw.metadata.to_metadata(),
            spec: raw.spec,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Record for LimitRangeRecord {
    type Kind = LimitRange;
    type Raw<'de> = RawConstraint<'de>;

    fn project(raw: RawConstraint<'_>) -> Self {
        Self {
            metadata: raw.metadata.to_metadata(),
            spec: raw.spec,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

impl Record for NamespaceRecord {
    type Kind = Namespace;
    type Raw<'de> = RawNamespace<'de>;
    const METADATA_ONLY: bool = true;

    fn kind_name() -> Cow<'static, str> {
        "Namespace labels".into()
    }

    fn project(raw: RawNamespace<'_>) -> Self {
        let labels = raw.metadata.labels.iter();
        Self {
            labels: labels
                .map(|(key, value)| (key.as_ref().into(), value.as_ref().into()))
                .collect(),
            metadata: raw.metadata.to_metadata(),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{LimitRangeRecord, QuotaRecord, Record};
    use crate::record::Projected;

    fn record<R: Record>(spec: &Value) -> Arc<R> {
        let object = json!({
            "metadata": {"name": "q", "namespace": "ns", "uid": "u", "resourceVersion": "1"}, "spec": spec,
        });
        let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
        projected.record
    }

    /// SAFE-6
    #[test]
    fn quotas_list_limits_and_limit_ranges_list_defaults() {
        let quota = record::<QuotaRecord>(
            &json!({"hard": {"limits.memory": "4Gi", "limits.cpu": "8", "requests.cpu": "4", "pods": "10"}}),
        );
        let both = || ["cpu", "memory"].map(Box::<str>::from);
        assert_eq!(quota.limits(), both().into());
        assert!(record::<QuotaRecord>(&json!({})).limits().is_empty());

        let range = record::<LimitRangeRecord>(&json!({"limits": [
            {"type": "Container", "default": {"memory": "1Gi"}, "min": {"storage": "1"}},
            {"type": "Container", "max": {"cpu": "2"}},
            {"type": "Pod", "max": {"gpu": "2"}},
        ]}));
        assert_eq!(range.defaults(), both().into());
        for invalid in [
            json!({}),
            json!({"limits": 7}),
            json!({"limits": [7, {"type": "Container"}]}),
        ] {
            assert!(
                record::<LimitRangeRecord>(&invalid).defaults().is_empty(),
                "{invalid}"
            );
        }
    }
}
