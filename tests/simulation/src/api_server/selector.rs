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
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

impl Selector {
    /// Parses `a=b,c!=d,e,!f,g in (h,i),j notin (k)`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut is_in_list = false;
        let requirements = text.split(|character: char| {
            is_in_list = character == '(' || is_in_list && character != ')';
            character == ',' && !is_in_list
        });
        let requirements = requirements.filter(|text| !text.is_empty());
        let list = |text: &str| {
            text.trim_end_matches(')')
                .split(',')
                .map(|it| it.trim().to_owned())
                .collect()
        };
        let parse = |text: &str| {
            let owned = str::to_owned;
            if let Some((key, values)) = text.split_once(" notin (") {
                Requirement::NotIn(owned(key), list(values))
            } else if let Some((key, values)) = text.split_once(" in (") {
                Requirement::In(owned(key), list(values))
            } else if let Some((key, value)) = text.split_once("!=") {
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
            Requirement::In(key, values) => {
                value_of(key).is_some_and(|value| values.iter().any(|it| it == value))
            }
            Requirement::NotIn(key, values) => {
                value_of(key).is_none_or(|value| values.iter().all(|it| it != value))
            }
        })
    }
}

/// The objects that a list or watch selects.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Namespace; `None` means all.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Selector,
    /// Field selector.
    pub fields: Selector,
}

impl Filter {
    /// Whether it selects by more than the namespace.
    #[must_use]
    pub fn has_selectors(&self) -> bool {
        !self.labels.0.is_empty() || !self.fields.0.is_empty()
    }

    /// Whether an object with this namespace and name may match. Others are skipped.
    #[must_use]
    pub fn is_candidate(&self, namespace: &str, name: &str) -> bool {
        let is_other = |requirement: &Requirement| matches!(requirement, Requirement::Equals(key, value) if key == "metadata.name" && value != name);
        let is_in_namespace = self.namespace.as_deref().is_none_or(|it| it == namespace);
        is_in_namespace && !self.fields.0.iter().any(is_other)
    }

    /// Whether it selects this object.
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
