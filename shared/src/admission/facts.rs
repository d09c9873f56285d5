//! Facts that the controller publishes for the webhook, in one `ConfigMap` of the operator's namespace (ADM-7).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Key of the only entry of the `ConfigMap`.
pub const FACTS_KEY: &str = "facts.json";

/// Facts that the webhook cannot observe itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookFacts {
    /// Bindable kinds that cannot be read in this cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableKind>,
    /// Desired replicas of the webhook; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Hash of the runtime script and the adapters, as mounted into pods (ROLL-8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scripts: Option<String>,
    /// Fingerprints of the CAs that every `caBundle` contains (CERT-7).
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
    /// The rule missing from the controller's `ClusterRole`, as YAML; `None` if the API server does not know the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_rule: Option<String>,
}

impl WebhookFacts {
    /// Serialises the facts as the data of the `ConfigMap`.
    #[must_use]
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let text = serde_json::to_string(self).unwrap_or_default();
        BTreeMap::from([(FACTS_KEY.to_owned(), text)])
    }

    /// Reads the facts from the data of the `ConfigMap`; defaults if they cannot be parsed.
    #[must_use]
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        data.get(FACTS_KEY)
            .map(|text| Self::parse(text))
            .unwrap_or_default()
    }

    /// Reads the facts from the entry of the `ConfigMap`; defaults if they cannot be parsed.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{FACTS_KEY, UnreadableKind, WebhookFacts};

    /// ADM-7
    #[test]
    fn facts_round_trip_and_unknown_fields_are_ignored() {
        let facts = WebhookFacts {
            unreadable: vec![UnreadableKind {
                group: "kaito.sh".to_owned(),
                kind: "Workspace".to_owned(),
                missing_rule: Some("apiGroups: [kaito.sh]".to_owned()),
            }],
            replicas: Some(2),
            scripts: Some("0123456789abcdef".to_owned()),
            trusted: vec!["ab12".to_owned()],
        };
        assert_eq!(WebhookFacts::read(&facts.to_data()), facts);
        let newer = r#"{"replicas": 1, "phaseOfTheMoon": "full"}"#.to_owned();
        let read =
            |text: String| WebhookFacts::read(&BTreeMap::from([(FACTS_KEY.to_owned(), text)]));
        assert_eq!(read(newer).replicas, Some(1));
        assert_eq!(read("{".to_owned()), WebhookFacts::default());
        assert_eq!(
            WebhookFacts::read(&BTreeMap::new()),
            WebhookFacts::default()
        );
    }
}
