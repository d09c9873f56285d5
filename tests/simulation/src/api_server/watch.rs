//! Events of a watch.

use serde_json::{Value, json};

use super::resources::Resource;
use super::selector::Filter;
use super::shown;
use super::store::{Change, Store};
use crate::api_server::status::Failure;

/// A watch in progress.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The watched resource.
    pub resource: &'static Resource,
    /// Which objects are watched.
    pub filter: Filter,
    /// The version up to which changes were delivered.
    pub version: u64,
    /// Whether only metadata is wanted.
    pub metadata_only: bool,
}

impl Watch {
    /// The next event, and the version that it brings. `None` if nothing has changed.
    ///
    /// # Errors
    /// If the version of the watch is too old.
    pub fn next(&mut self, store: &Store) -> Result<Option<Value>, Failure> {
        let changes = store.changes_after(self.version)?;
        for change in changes {
            self.version = change.version;
            if let Some(event) = self.event(change) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn event(&self, change: &Change) -> Option<Value> {
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
        // An object that goes is shown as it was, with the version at which it went.
        let last = change.before.as_ref().filter(|_| kind == "DELETED");
        let mut object = shown(last.unwrap_or(&change.after), self.metadata_only);
        object["metadata"]["resourceVersion"] = change.version.to_string().into();
        Some(json!({"type": kind, "object": object}))
    }

    /// An event that only tells how far the watch has come.
    #[must_use]
    pub fn bookmark(&self) -> Value {
        let (api_version, kind) = if self.metadata_only {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
        } else {
            (self.resource.api_version(), self.resource.kind)
        };
        let metadata =
            json!({"resourceVersion": self.version.to_string(), "creationTimestamp": null});
        json!({"type": "BOOKMARK", "object": {"apiVersion": api_version, "kind": kind, "metadata": metadata}})
    }
}
