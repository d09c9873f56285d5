//! Environment variables of the containers that the operator adds.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An environment variable, as in a pod.
// Everything beside `name` passes through unchanged, so that fields of a newer API server are not lost.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// `value`, `valueFrom` and any other field that the API server knows.
    #[serde(flatten)]
    pub source: Map<String, Value>,
}

impl EnvVar {
    /// Returns the literal value; `None` if it comes from elsewhere. A variable without either is empty, as in a pod.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match (self.source.get("value"), self.source.get("valueFrom")) {
            (Some(Value::String(value)), _) => Some(value),
            (None | Some(Value::Null), None | Some(Value::Null)) => Some(""),
            _ => None,
        }
    }
}

impl JsonSchema for EnvVar {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "EnvVar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        super::schema::env_var()
    }
}
