//! Label and field selectors.

use serde_json::Value;

/// A label or field selector: requirements that must all hold.
#[derive(Clone, Debug, Default)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug)]
enum Requirement {
    Exists(String),
    Absent(String),
    Equals(String, String),
    Differs(String, String),
}

impl Selector {
    /// Parses `a=b,c!=d,e,!f`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let requirements = text.split(',').filter(|text| !text.is_empty());
        let parse = |text: &str| {
            let owned = str::to_owned;
            if let Some((key, value)) = text.split_once("!=") {
                Requirement::Differs(owned(key), owned(value))
            } else if let Some((key, value)) = text.split_once('=') {
                Requirement::Equals(owned(key), owned(value.trim_start_matches('=')))
            } else if let Some(key) = text.strip_prefix('!') {
                Requirement::Absent(owned(key))
            } else {
                Requirement::Exists(owned(text))
            }
        };
        Self(requirements.map(parse).collect())
    }

    fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => value_of(key).is_some(),
            Requirement::Absent(key) => value_of(key).is_none(),
            Requirement::Equals(key, value) => value_of(key) == Some(value),
            Requirement::Differs(key, value) => value_of(key) != Some(value),
        })
    }
}

/// Which objects a list or watch returns.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Namespace; `None` means all.
    pub namespace: Option<String>,
    /// By labels.
    pub labels: Selector,
    /// By fields.
    pub fields: Selector,
}

impl Filter {
    /// Whether it selects an object.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let labels = &metadata["labels"];
        let field = |path: &str| {
            let value = path.split('.').fold(object, |at, name| &at[name]);
            Some(value.as_str().unwrap_or_default())
        };
        let namespace = self.namespace.as_deref();
        namespace.is_none_or(|namespace| metadata["namespace"] == namespace)
            && self.labels.matches(|name| labels[name].as_str())
            && self.fields.matches(field)
    }
}
