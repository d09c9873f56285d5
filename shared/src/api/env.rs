//! Environment variables of the containers that we add.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An environment variable, as in a pod.
// What stands beside `name` passes through as written, so that a newer API server's fields are not lost.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// `value`, `valueFrom` and whatever else the API server knows.
    #[serde(flatten)]
    pub source: Map<String, Value>,
}

impl EnvVar {
    /// The literal value; `None` where it comes from elsewhere. A variable without both is empty, as in a pod.
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
