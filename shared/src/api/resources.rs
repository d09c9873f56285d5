//! Resource requirements of the containers that the operator adds.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Resource requirements of a container, passed through unchanged. Quantities may be numbers or strings.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(transparent)]
pub struct Resources(pub Map<String, Value>);

impl JsonSchema for Resources {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Resources".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        super::schema::resources()
    }
}
