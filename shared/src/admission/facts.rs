//! What the controller tells the webhook beside actors, in one `ConfigMap` of the operator's namespace (ADM-7).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Key of the `ConfigMap`'s only value.
pub const FACTS_KEY: &str = "facts.json";

/// What a webhook cannot see by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// Kinds that can be bound, but not here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableKind>,
    /// How many replicas of the webhook there are to be; `None`: nobody told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Hash of the runtime's script and adapters, as pods mount them (ROLL-8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scripts: Option<String>,
    /// Fingerprints of the authorities that every `caBundle` holds (CERT-7).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted: Vec<String>,
}

/// A kind whose objects the controller cannot read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnreadableKind {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// The rule that the controller's `ClusterRole` lacks, as YAML; `None`: the API server does not know the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<String>,
}

impl Facts {
    /// The data of the `ConfigMap`.
    #[must_use]
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let text = serde_json::to_string(self).unwrap_or_default();
        BTreeMap::from([(FACTS_KEY.to_owned(), text)])
    }

    /// Reads the data of the `ConfigMap`; what cannot be read is not known.
    #[must_use]
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        let text = data.get(FACTS_KEY);
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{FACTS_KEY, Facts, UnreadableKind};

    /// ADM-7
    #[test]
    fn facts_are_read_as_they_were_written_and_unknown_ones_are_no_error() {
        let facts = Facts {
            unreadable: vec![UnreadableKind {
                group: "kaito.sh".to_owned(),
                kind: "Workspace".to_owned(),
                missing_rule: Some("apiGroups: [kaito.sh]".to_owned()),
            }],
            replicas: Some(2),
            scripts: Some("0123456789abcdef".to_owned()),
            trusted: vec!["ab12".to_owned()],
        };
        assert_eq!(Facts::read(&facts.to_data()), facts);
        let newer = r#"{"replicas": 1, "phaseOfTheMoon": "full"}"#.to_owned();
        let read = |text: String| Facts::read(&BTreeMap::from([(FACTS_KEY.to_owned(), text)]));
        assert_eq!(read(newer).replicas, Some(1));
        assert_eq!(read("{".to_owned()), Facts::default());
        assert_eq!(Facts::read(&BTreeMap::new()), Facts::default());
    }
}
