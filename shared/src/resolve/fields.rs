//! Reads fields of objects that other projects define. A field of an unexpected type makes its target wait (RES-1).

use serde_json::{Map, Value};

use super::{Caveat, Finding, FindingReason, ObjectRef, Resolution, controller_of, has_owner};

/// The value, or the resolution to return instead.
pub(super) type Read<T> = Result<T, Resolution>;

/// The target lacks something that may still appear.
pub(super) fn waiting(message: impl Into<String>) -> Resolution {
    Resolution::Waiting(Finding::new(FindingReason::TargetNotReady, message))
}

/// The target cannot be bound as it is.
pub(super) fn refused(message: impl Into<String>) -> Resolution {
    Resolution::Refused(Finding::new(FindingReason::UnsupportedTarget, message))
}

/// An object with its reference.
pub(super) struct Fields<'a> {
    object: &'a Value,
    pub(super) itself: ObjectRef,
    pub(super) uid: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn of(object: &'a Value, kind: &str) -> Read<Self> {
        let unreadable = || {
            waiting(format!(
                "{kind}: cannot read its kind, name or uid; waiting until they are set"
            ))
        };
        let itself = ObjectRef::of(object).ok_or_else(unreadable)?;
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        Ok(Self {
            object,
            itself,
            uid: uid.filter(|it| !it.is_empty()).ok_or_else(unreadable)?,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.itself.name
    }

    /// A string field; empty counts as missing.
    pub(super) fn text(&self, path: &[&str]) -> Read<Option<&'a str>> {
        let text = self.read(path, "a text", Value::as_str)?;
        Ok(text.filter(|it| !it.is_empty()))
    }

    pub(super) fn annotation(&self, key: &str) -> Read<Option<&'a str>> {
        self.text(&["metadata", "annotations", key])
    }

    pub(super) fn number(&self, path: &[&str]) -> Read<Option<i64>> {
        self.read(path, "a whole number", Value::as_i64)
    }

    /// A boolean field; false if missing.
    pub(super) fn flag(&self, path: &[&str]) -> Read<bool> {
        let flag = self.read(path, "true or false", Value::as_bool)?;
        Ok(flag.unwrap_or_default())
    }

    /// A list field; empty if missing.
    pub(super) fn list(&self, path: &[&str]) -> Read<&'a [Value]> {
        let list = self.read(path, "a list", Value::as_array)?;
        Ok(list.map_or(&[], Vec::as_slice))
    }

    pub(super) fn object(&self, path: &[&str]) -> Read<Option<&'a Map<String, Value>>> {
        self.read(path, "an object", Value::as_object)
    }

    /// A nested object; messages refer to it by this path.
    pub(super) fn part(&self, path: &[&str], part: &'a Value) -> Read<&'a Map<String, Value>> {
        part.as_object()
            .ok_or_else(|| self.of_unexpected_type(path, "an object"))
    }

    pub(super) fn of_unexpected_type(&self, path: &[&str], expected: &str) -> Resolution {
        let path = shown(path);
        waiting(format!(
            "{}: {path} is not {expected}; waiting until it is",
            self.itself
        ))
    }

    fn read<T>(
        &self,
        path: &[&str],
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Read<Option<T>> {
        let mut value = self.object;
        for (at, key) in path.iter().enumerate() {
            let Some(parent) = value.as_object() else {
                return Err(
                    self.of_unexpected_type(path.get(..at).unwrap_or_default(), "an object")
                );
            };
            match parent.get(*key) {
                None | Some(Value::Null) => return Ok(None),
                Some(child) => value = child,
            }
        }
        read(value)
            .map(Some)
            .ok_or_else(|| self.of_unexpected_type(path, expected))
    }

    /// A warning if the object itself belongs to an owner (RES-4).
    pub(super) fn owner_warning(&self) -> Option<Caveat> {
        let owner = controller_of(self.object)?;
        Some(has_owner(&self.itself, &owner))
    }
}

/// Formats a path as `spec.template`, with brackets around keys that contain dots or slashes.
fn shown(path: &[&str]) -> String {
    let mut text = String::new();
    for key in path {
        if key.contains(['.', '/']) {
            text = format!("{text}[{key}]");
        } else if text.is_empty() {
            (*key).clone_into(&mut text);
        } else {
            text = format!("{text}.{key}");
        }
    }
    text
}
