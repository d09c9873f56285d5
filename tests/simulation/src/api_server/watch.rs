//! Events of a watch.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::object::{Form, Object, encode};
use super::resources::Resource;
use super::selector::Filter;
use super::status::Failure;
use super::store::{Change, Store};

/// A watch in progress.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The watched resource.
    pub resource: &'static Resource,
    /// Which objects to watch.
    pub filter: Filter,
    /// The last delivered version.
    pub version: u64,
    /// Whether to return only metadata.
    pub metadata_only: bool,
}

/// An event about an object.
#[derive(Clone, Debug)]
pub struct Event {
    /// ADDED, MODIFIED or DELETED.
    kind: &'static str,
    object: Arc<Object>,
    form: Form,
}

impl Event {
    /// The line that the client receives.
    #[must_use]
    pub fn line(&self) -> Bytes {
        let object = self.object.encoded(self.form);
        // The type comes first, as from the real server: it tells a client how to decode the object.
        let head = format!("{{\"type\":\"{}\",\"object\":", self.kind);
        [head.as_bytes(), object, b"}\n"].concat().into()
    }

    /// The event as JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        // Encoded by this server, so it always decodes.
        serde_json::from_slice(&self.line()).unwrap_or_default()
    }
}

/// The line of an event that does not concern a stored object.
#[must_use]
pub fn line(kind: &str, object: &Value) -> Bytes {
    let event = encode(&json!({"type": kind, "object": object}));
    [&*event, b"\n"].concat().into()
}

impl Watch {
    /// The next event and its version; `None` if nothing has changed.
    ///
    /// # Errors
    /// If the version of the watch is too old.
    pub fn next(&mut self, store: &Store) -> Result<Option<Event>, Failure> {
        let changes = store.changes_after(self.version)?;
        for change in changes {
            self.version = change.version;
            if let Some(event) = self.event(change) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn event(&self, change: &Change) -> Option<Event> {
        if change.id.resource != self.resource {
            return None;
        }
        let before = change
            .before
            .as_ref()
            .is_some_and(|it| self.filter.matches(it));
        let after = !change.deleted && self.filter.matches(&change.after);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        let form = Form::single(self.metadata_only);
        let object = match &change.before {
            // A deleted object is shown in its last state, with the version of the deletion.
            Some(last) if kind == "DELETED" => {
                let mut last = last.to_value();
                last["metadata"]["resourceVersion"] = change.version.to_string().into();
                Arc::new(last.into())
            }
            _ => Arc::clone(&change.after),
        };
        Some(Event { kind, object, form })
    }

    /// A bookmark, which reports only how far the watch has progressed.
    #[must_use]
    pub fn bookmark(&self) -> Bytes {
        let (api_version, kind) = if self.metadata_only {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
        } else {
            (self.resource.api_version(), self.resource.kind)
        };
        let metadata =
            json!({"resourceVersion": self.version.to_string(), "creationTimestamp": null});
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        line("BOOKMARK", &object)
    }
}
