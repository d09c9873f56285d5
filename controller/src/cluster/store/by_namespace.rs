//! Names of the records of each namespace, so that the actors of one are not searched for among all others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::record::Key;

#[cfg(test)]
use self::tests::count_visit;

/// Names of records by namespace.
#[derive(Debug, Default)]
pub struct ByNamespace(HashMap<Arc<str>, NamespaceRecords>);

#[derive(Debug, Default)]
struct NamespaceRecords {
    names: BTreeSet<Arc<str>>,
    active: usize,
}

impl ByNamespace {
    /// Adds or replaces a record.
    pub fn put(&mut self, key: &Key, was_active: Option<bool>, is_active: bool) {
        let namespace = self.0.entry(Arc::clone(&key.namespace)).or_default();
        if was_active.is_none() {
            namespace.names.insert(Arc::clone(&key.name));
        }
        namespace.active += usize::from(is_active);
        namespace.active -= usize::from(was_active == Some(true));
    }

    /// Removes a record that was added.
    pub fn remove(&mut self, key: &Key, was_active: bool) {
        let Some(namespace) = self.0.get_mut(&key.namespace) else {
            return;
        };
        namespace.names.remove(&key.name);
        namespace.active -= usize::from(was_active);
        if namespace.names.is_empty() {
            self.0.remove(&key.namespace);
        }
    }

    /// The keys of a namespace, by name.
    pub fn keys(&self, namespace: &str) -> impl Iterator<Item = Key> {
        let entry = self.0.get_key_value(namespace).into_iter();
        entry.flat_map(|(namespace, entry)| {
            let names = entry.names.iter().inspect(|_| count_visit());
            names.map(|name| Key {
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            })
        })
    }

    /// How many active records a namespace has.
    pub fn active(&self, namespace: &str) -> usize {
        self.0.get(namespace).map_or(0, |it| it.active)
    }
}

#[cfg(not(test))]
const fn count_visit() {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::super::Store;
    use crate::cluster::watch_scope::WatchScope;
    use crate::record::{ActorRecord, Key, Projected};

    thread_local! {
        static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_visit() {
        VISITS.set(VISITS.get() + 1);
    }

    fn actor(namespace: &str, name: &str, deleting: bool) -> Projected<ActorRecord> {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1",
            "deletionTimestamp": deleted,
        });
        serde_json::from_str(&json!({"metadata": metadata, "spec": {}}).to_string()).unwrap()
    }

    /// OPS-32: looking at all records for each would visit 1,000,000.
    #[test]
    fn actors_of_a_namespace_are_not_looked_for_among_all() {
        let store = Store::default();
        for number in 0..1000 {
            let namespace = format!("ns{}", number / 10);
            store.apply(
                &WatchScope::Cluster,
                &actor(&namespace, &format!("a{number}"), false),
            );
        }
        let before = VISITS.get();
        for number in 0..1000 {
            let namespace = format!("ns{}", number / 10);
            assert_eq!(store.keys_in(&namespace).len(), 10);
        }
        assert_eq!(VISITS.get() - before, 10_000);
        assert!(store.keys_in("ns").is_empty());
    }

    /// OPS-32, RUN-2: all actors of a namespace are deleted at once, each of which asks whether it is the last.
    #[test]
    fn last_actor_is_known_without_looking_at_the_others() {
        let store = Store::default();
        let key = |number: usize| Key::new("ns", &format!("a{number}"));
        for number in 0..1000 {
            store.apply(
                &WatchScope::Cluster,
                &actor("ns", &format!("a{number}"), false),
            );
        }
        store.apply(&WatchScope::Cluster, &actor("other", "a", false));
        let before = VISITS.get();
        for number in 0..1000 {
            let is_last = number == 999;
            assert_eq!(store.has_other_active(&key(number)), !is_last, "{number}");
            store.apply(
                &WatchScope::Cluster,
                &actor("ns", &format!("a{number}"), true),
            );
            assert_eq!(store.has_other_active(&key(number)), !is_last, "{number}");
        }
        assert!(!store.has_other_active(&key(7)));
        assert!(store.has_other_active(&Key::new("other", "b")));
        for number in 0..1000 {
            store.delete(
                &WatchScope::Cluster,
                &actor("ns", &format!("a{number}"), true),
            );
        }
        assert_eq!(VISITS.get(), before);
        assert!(store.keys_in("ns").is_empty());
    }
}
