//! Label selectors: read from workloads, and written to and read from status in Kubernetes' string format.

use std::fmt;

use serde_json::{Map, Value, json};
use thiserror::Error;

/// A label selector. An empty one matches every pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How to compare the label's value.
    pub operator: Operator,
}

/// How to compare a label's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The value is one of these.
    In(Vec<String>),
    /// The value is none of these, or the label is missing.
    NotIn(Vec<String>),
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

/// Input that is not a valid label selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0} is not a label selector")]
pub struct InvalidSelector(String);

impl Selector {
    /// A selector with all of these requirements.
    #[must_use]
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        let mut all: Vec<_> = requirements.into_iter().collect();
        all.sort();
        all.dedup();
        Self(all)
    }

    /// A selector for these label values.
    #[must_use]
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::new(labels.into_iter().map(|(key, value)| Requirement {
            key: key.to_owned(),
            operator: Operator::In(vec![value.to_owned()]),
        }))
    }

    /// The requirements, sorted.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// The only value that a label may have, if there is just one.
    #[must_use]
    pub fn value_of(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|it| match &it.operator {
            Operator::In(values) if it.key == key && values.len() == 1 => {
                values.first().map(String::as_str)
            }
            _ => None,
        })
    }

    /// About the size of the selector as JSON, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let of = |it: &Requirement| {
            let values: usize = match &it.operator {
                Operator::In(values) | Operator::NotIn(values) => {
                    values.iter().map(|value| value.len() + 3).sum()
                }
                Operator::Exists | Operator::DoesNotExist => 0,
            };
            it.key.len() + values + r#"{"key":"","operator":"NotIn","values":[]},"#.len()
        };
        self.0.iter().map(of).sum()
    }

    /// Whether the labels satisfy all requirements.
    #[must_use]
    pub fn matches<'p>(&self, label: &impl Fn(&str) -> Option<&'p str>) -> bool {
        self.0.iter().all(|it| {
            let value = label(&it.key);
            let among = |values: &[String]| {
                value.is_some_and(|value| values.iter().any(|other| other == value))
            };
            match &it.operator {
                Operator::In(values) => among(values),
                Operator::NotIn(values) => !among(values),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }

    /// Reads a selector as in a workload or a webhook configuration.
    ///
    /// # Errors
    /// When the value is not a valid selector.
    pub fn from_json(selector: &Value) -> Result<Self, InvalidSelector> {
        let refuse = || InvalidSelector(selector.to_string());
        let mut all = Vec::new();
        for (key, value) in members(selector, "matchLabels").ok_or_else(refuse)? {
            all.push(Requirement {
                key: key.clone(),
                operator: Operator::In(vec![value.as_str().ok_or_else(refuse)?.to_owned()]),
            });
        }
        let expressions = match selector.get("matchExpressions") {
            None | Some(Value::Null) => &[],
            Some(list) => list.as_array().ok_or_else(refuse)?.as_slice(),
        };
        for expression in expressions {
            all.push(Requirement::from_json(expression).ok_or_else(refuse)?);
        }
        Ok(Self::new(all))
    }

    /// The selector in the JSON form of the Kubernetes API.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut labels = Map::new();
        let mut expressions = Vec::new();
        for it in &self.0 {
            let (operator, values) = match &it.operator {
                Operator::In(values) => match (values.as_slice(), labels.get(&it.key)) {
                    ([value], None) => {
                        labels.insert(it.key.clone(), json!(value));
                        continue;
                    }
                    _ => ("In", Some(values)),
                },
                Operator::NotIn(values) => ("NotIn", Some(values)),
                Operator::Exists => ("Exists", None),
                Operator::DoesNotExist => ("DoesNotExist", None),
            };
            let mut expression = json!({"key": it.key, "operator": operator});
            if let Some(values) = values {
                expression["values"] = json!(values);
            }
            expressions.push(expression);
        }
        let mut selector = Map::new();
        if !labels.is_empty() {
            selector.insert("matchLabels".to_owned(), Value::Object(labels));
        }
        if !expressions.is_empty() {
            selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
        }
        Value::Object(selector)
    }

    /// Parses the string format of [`Display`](fmt::Display), which is that of `kubectl -l`.
    ///
    /// # Errors
    /// When the text is not a valid selector.
    pub fn parse(text: &str) -> Result<Self, InvalidSelector> {
        let refuse = || InvalidSelector(format!("\"{text}\""));
        let mut all = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // a comma in parentheses does not end a requirement
            let mut depth = 0_u32;
            let end = rest.find(|c| {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                c == ',' && depth == 0
            });
            let (one, after) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
            all.push(Requirement::parse(one).ok_or_else(refuse)?);
            rest = after.trim_start();
        }
        Ok(Self::new(all))
    }
}

fn members<'a>(
    parent: &'a Value,
    key: &str,
) -> Option<impl Iterator<Item = (&'a String, &'a Value)>> {
    let object = match parent.as_object()?.get(key) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_object()?),
    };
    Some(object.into_iter().flatten())
}

impl Requirement {
    fn from_json(expression: &Value) -> Option<Self> {
        let values = || -> Option<Vec<String>> {
            let list = expression.get("values")?.as_array()?;
            list.iter()
                .map(|it| it.as_str().map(str::to_owned))
                .collect()
        };
        Some(Self {
            key: expression.get("key")?.as_str()?.to_owned(),
            operator: match expression.get("operator")?.as_str()? {
                "In" => Operator::In(values()?),
                "NotIn" => Operator::NotIn(values()?),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            },
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let is_word = |text: &str| {
            let legal = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            text.chars().all(legal)
        };
        let text = text.trim();
        let (key, operator) = if let Some(key) = text.strip_prefix('!') {
            (key, Operator::DoesNotExist)
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Operator::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = text.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Operator::In(vec![value.trim().to_owned()]))
        } else if let Some((head, list)) = text.split_once('(') {
            let list = list.strip_suffix(')')?;
            let values = list.split(',').map(|it| it.trim().to_owned()).collect();
            match head.trim().split_once(char::is_whitespace)? {
                (key, word) if word.trim() == "in" => (key, Operator::In(values)),
                (key, word) if word.trim() == "notin" => (key, Operator::NotIn(values)),
                _ => return None,
            }
        } else {
            (text, Operator::Exists)
        };
        let key = key.trim();
        let legal = match &operator {
            Operator::In(values) | Operator::NotIn(values) => {
                values.iter().all(|value| is_word(value))
            }
            Operator::Exists | Operator::DoesNotExist => true,
        };
        (!key.is_empty() && is_word(key) && legal).then(|| Self {
            key: key.to_owned(),
            operator,
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, it) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            it.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            Operator::In(values) => match values.as_slice() {
                [value] => write!(f, "{key}={value}"),
                _ => write!(f, "{key} in ({})", values.join(",")),
            },
            Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}
