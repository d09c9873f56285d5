//! Versions of objects, and their encoding for clients.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One version of an object.
///
/// Several watches and many lists return the same version, so it is encoded only once.
#[derive(Debug, Default)]
pub struct Object {
    value: Value,
    whole: OnceLock<Bytes>,
    item: OnceLock<Bytes>,
    metadata: OnceLock<Bytes>,
}

/// The part of an object that a client receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The whole object.
    Whole,
    /// All but its kind, as in lists of built-in kinds, where only the list names the kind of its items.
    Item,
    /// Only the metadata.
    Metadata,
}

impl Form {
    /// The form of an object outside a list.
    #[must_use]
    pub fn single(metadata_only: bool) -> Self {
        if metadata_only {
            Self::Metadata
        } else {
            Self::Whole
        }
    }
}

impl Object {
    /// A mutable copy.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.value.clone()
    }

    /// The object, encoded in this form.
    pub fn encoded(&self, form: Form) -> &Bytes {
        let cell = match form {
            Form::Whole => &self.whole,
            Form::Item => &self.item,
            Form::Metadata => &self.metadata,
        };
        cell.get_or_init(|| encode(&Shown(&self.value, form)))
    }
}

impl From<Value> for Object {
    fn from(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// Encodes a value as JSON.
#[must_use]
pub fn encode(value: &impl Serialize) -> Bytes {
    // Serializing such a value cannot fail.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// An object shown in a form.
struct Shown<'a>(&'a Value, Form);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(object, form) = self;
        match form {
            Form::Whole => object.serialize(serializer),
            Form::Item => {
                let fields = object.as_object().into_iter().flatten();
                serializer
                    .collect_map(fields.filter(|(it, _)| *it != "apiVersion" && *it != "kind"))
            }
            Form::Metadata => {
                let mut map = serializer.serialize_map(Some(3))?;
                map.serialize_entry("apiVersion", "meta.k8s.io/v1")?;
                map.serialize_entry("kind", "PartialObjectMetadata")?;
                map.serialize_entry("metadata", &object["metadata"])?;
                map.end()
            }
        }
    }
}
