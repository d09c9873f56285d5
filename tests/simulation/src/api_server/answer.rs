//! Responses of the server.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::object::{Form, Object, encode};
use super::resources::Resource;
use super::schema;

/// A response of the server.
#[derive(Clone, Debug)]
pub enum Answer {
    /// An object.
    Object(Arc<Object>, Form),
    /// Any other value.
    Value(Value),
    /// Any other value, already encoded.
    Encoded(Bytes),
}

impl Answer {
    /// The body of the response.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Object(object, form) => object.encoded(form).clone(),
            Self::Value(value) => encode(&value),
            Self::Encoded(bytes) => bytes,
        }
    }

    /// The body of the response as JSON.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Object(object, Form::Whole) => object.to_value(),
            Self::Value(value) => value,
            // Encoded by this server, so it always decodes.
            other => serde_json::from_slice(&other.into_bytes()).unwrap_or_default(),
        }
    }
}

impl From<Value> for Answer {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

/// A page of a list.
#[must_use]
pub fn list(
    resource: &Resource,
    metadata: &Value,
    items: &[Arc<Object>],
    metadata_only: bool,
) -> Answer {
    let (api_version, kind, form) = if metadata_only {
        let api_version = "meta.k8s.io/v1".to_owned();
        (
            api_version,
            "PartialObjectMetadataList".to_owned(),
            Form::Metadata,
        )
    } else {
        let is_custom = schema::is_custom(resource);
        let form = if is_custom { Form::Whole } else { Form::Item };
        (
            resource.api_version(),
            format!("{}List", resource.kind),
            form,
        )
    };
    let head = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    let mut text = encode(&head).to_vec();
    text.pop();
    text.extend_from_slice(b",\"items\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(item.encoded(form));
    }
    text.extend_from_slice(b"]}");
    Answer::Encoded(text.into())
}
