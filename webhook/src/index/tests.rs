use std::sync::Arc;

use asya_shared::api::WorkloadRef;
use serde_json::{Value, json};

use super::{Index, Key, Seen};
use crate::testing::{bound, platform, show};

fn seen(namespace: &str, name: &str, spec: &Value) -> Seen {
    let actor = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1"},
        "spec": spec,
    });
    serde_json::from_str(&actor.to_string()).unwrap()
}

fn binding(target: &str) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
    json!({"transport": "mq", "workloadRef": target})
}

fn target(name: &str) -> WorkloadRef {
    serde_json::from_value(binding(name)["workloadRef"].clone()).unwrap()
}

struct World {
    index: Index,
}

impl World {
    fn new() -> Self {
        Self {
            index: Index::new(platform()),
        }
    }

    fn show(&self, seen: &Seen) {
        self.index.show(&seen.actor);
    }

    fn holder(&self, name: &str) -> Option<String> {
        let holder = self.index.holder(&Key::new("asking", name), "mq");
        holder.map(|(key, _)| key.to_string())
    }

    fn binder(&self, name: &str) -> Option<String> {
        let binder = self.index.binder(&Key::new("a", "asking"), &target(name));
        binder.map(|key| key.to_string())
    }
}

/// QUE-41, QUE-42
#[test]
fn pods_are_injected_until_a_deletion_stops_waiting_for_the_queue() {
    let released = json!({"queueReleasedSince": "2026-01-01T00:00:09Z"});
    for (policy, status, deleting) in [
        (json!("Delete"), json!({}), true),
        (json!("Drain"), json!({}), false),
        (json!("DeleteIfEmpty"), json!({}), false),
        (json!("Drain"), released, true),
        (json!(7), json!({}), true),
    ] {
        let actor = json!({
            "metadata": {
                "namespace": "a", "name": "x", "uid": "x", "resourceVersion": "1",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"transport": "mq", "queue": {"deletionPolicy": policy}},
            "status": status,
        });
        let seen: Seen = serde_json::from_str(&actor.to_string()).unwrap();
        assert_eq!(seen.actor.deleting, deleting, "{actor}");
    }
}

#[test]
fn what_an_actor_no_longer_asks_for_is_free() {
    let world = World::new();
    world.show(&seen("a", "x", &binding("one")));
    assert_eq!(world.holder("x").as_deref(), Some("a/x"));
    assert_eq!(world.binder("one").as_deref(), Some("a/x"));

    world.show(&seen("a", "x", &binding("two")));
    assert_eq!(
        (world.binder("one"), world.binder("two")),
        (None, Some("a/x".to_owned()))
    );

    world.index.removed(&Key::new("a", "x"));
    assert_eq!((world.holder("x"), world.binder("two")), (None, None));
    assert_eq!(world.index.len(), 0);
}

#[test]
fn actors_missing_from_a_relist_are_removed() {
    let world = World::new();
    world.show(&seen("a", "stays", &json!({"transport": "mq"})));
    world.show(&seen("a", "goes", &json!({"transport": "mq"})));
    assert!(!world.index.is_synced());
    world.index.relisting();
    world.show(&seen("a", "stays", &json!({"transport": "mq"})));
    world.show(&seen("a", "comes", &json!({"transport": "mq"})));
    // Nothing is lost while the list runs.
    assert!(world.holder("goes").is_some());
    world.index.relisted();
    assert!(world.index.is_synced());
    assert_eq!(world.holder("goes"), None);
    assert!(world.holder("stays").is_some() && world.holder("comes").is_some());
}

/// One bad object would fail every list.
#[test]
fn actor_is_decoded_whatever_its_spec_and_status_hold() {
    for (spec, status) in [
        (json!(null), json!(null)),
        (json!([1]), json!("x")),
        (json!({"transport": 7}), json!({"queue": 7})),
        (
            json!({"transport": "mq", "workloadRef": "x"}),
            json!({"boundSince": "soon"}),
        ),
    ] {
        let actor = json!({
            "metadata": {"name": "x", "uid": "u", "resourceVersion": "1", "labels": [7]},
            "spec": spec, "status": status,
        });
        let read: Result<Seen, _> = serde_json::from_str(&actor.to_string());
        assert!(read.is_ok(), "{actor}: {read:?}");
    }
}

#[test]
fn bindings_are_indexed_by_namespace() {
    let world = World::new();
    let names = |namespace: &str| {
        let bindings = world.index.bindings_in(namespace);
        let mut names: Vec<_> = bindings.iter().map(|it| it.name.clone()).collect();
        names.sort();
        names
    };
    show(&world.index, &bound("a", "one", "x"));
    show(&world.index, &bound("a", "two", "y"));
    show(&world.index, &bound("b", "three", "x"));
    world.show(&seen(
        "a",
        "standalone",
        &json!({"transport": "mq", "workload": {}}),
    ));
    let mut unreadable = bound("a", "unreadable", "z");
    unreadable["spec"]["timeout"] = json!({"processing": "soon"});
    show(&world.index, &unreadable);
    assert_eq!(
        (names("a"), names("b")),
        (
            vec!["one".to_owned(), "two".to_owned()],
            vec!["three".to_owned()]
        )
    );

    // A spec that cannot be decoded binds its target all the same: only the controller can decide about it.
    assert_eq!(world.binder("z").as_deref(), Some("a/unreadable"));
    world.index.removed(&Key::new("a", "one"));
    world.index.removed(&Key::new("b", "three"));
    assert_eq!(
        (names("a"), names("b")),
        (vec!["two".to_owned()], Vec::new())
    );
}

/// Readers never wait for a writer that is itself waiting.
#[test]
fn concurrent_reviews_read_the_index() {
    let world = Arc::new(World::new());
    world.show(&seen("a", "x", &binding("one")));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    assert!(world.holder("x").is_some());
                }
            });
        }
        for _ in 0..1_000 {
            world.show(&seen("a", "x", &binding("one")));
        }
    });
}
