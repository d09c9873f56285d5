//! The garbage collector.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::deletion::Deletion;
use super::deletion::{FOREGROUND, ORPHAN, finalizers};
use super::id::Id;
use super::managed::Writer;
use super::object::Object;
use super::store::{Store, owners};

impl Store {
    /// Deletes one object whose owners are all gone, or completes one deletion with a finalizer of the garbage
    /// collector. Returns whether there was one.
    pub fn collect_garbage(&mut self) -> bool {
        let waits = |object: &Value| {
            object["metadata"]["deletionTimestamp"].is_string()
                && finalizers(object).any(|it| it == ORPHAN || it == FOREGROUND)
        };
        let waiting = self.everything().find(|(_, object)| waits(object));
        if let Some((id, live)) = waiting.map(|(id, live)| (id.clone(), Arc::clone(live))) {
            self.finalize(&id, &live);
            return true;
        }
        let uids: HashSet<Option<&str>> = self
            .everything()
            .map(|(_, it)| it["metadata"]["uid"].as_str())
            .collect();
        let is_garbage = |object: &Value| {
            let mut all = owners(object).peekable();
            all.peek().is_some()
                && object["metadata"]["deletionTimestamp"].is_null()
                && all.all(|owner| !uids.contains(&owner["uid"].as_str()))
        };
        let garbage = self.everything().find(|(_, object)| is_garbage(object));
        let Some(id) = garbage.map(|(id, _)| id.clone()) else {
            return false;
        };
        let _ = self.delete(&id, &Deletion::default());
        true
    }

    /// Processes an object that is being deleted with one of the garbage collector's finalizers.
    fn finalize(&mut self, id: &Id, live: &Arc<Object>) {
        let uid = &live["metadata"]["uid"];
        let is_dependent = |object: &Value| owners(object).any(|it| it["uid"] == *uid);
        let dependents = self.everything().filter(|(_, object)| is_dependent(object));
        let dependents: Vec<_> = dependents
            .map(|(id, object)| (id.clone(), Arc::clone(object)))
            .collect();
        let orphans = finalizers(live).any(|it| it == ORPHAN);
        for (id, dependent) in dependents {
            if orphans {
                self.without(&id, &dependent, "ownerReferences", |it| it["uid"] == *uid);
            } else {
                let _ = self.delete(&id, &Deletion::default());
            }
        }
        let is_own = |it: &Value| it == ORPHAN || it == FOREGROUND;
        self.without(id, live, "finalizers", is_own);
    }

    /// Removes items from a list in the metadata.
    fn without(
        &mut self,
        id: &Id,
        live: &Arc<Object>,
        list: &str,
        is_meant: impl Fn(&Value) -> bool,
    ) {
        let mut object = live.to_value();
        if let Some(items) = object["metadata"][list].as_array_mut() {
            items.retain(|item| !is_meant(item));
        }
        let writer = Writer {
            manager: "kube-controller-manager".to_owned(),
            status: false,
        };
        let _ = self.update(id, object, &writer);
    }
}
