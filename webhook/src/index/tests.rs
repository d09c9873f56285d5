use std::sync::Arc;

use asya_shared::api::WorkloadRef;
use asya_shared::validate::MAX_SPEC_BYTES;
use serde_json::{Value, json};

use super::{Index, Key, ProjectedActor};
use crate::testing::{bound, index_actor, installation};

fn projected(namespace: &str, name: &str, spec: &Value) -> ProjectedActor {
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

struct Fixture {
    index: Index,
}

impl Fixture {
    fn new() -> Self {
        Self {
            index: Index::new(installation()),
        }
    }

    fn apply(&self, projected: &ProjectedActor) {
        self.index.apply(&projected.actor);
    }

    fn queue_owner(&self, name: &str) -> Option<String> {
        let conflict = self.index.taken_queue_name(&Key::new("other", name), "mq");
        conflict.map(|(key, _)| key.to_string())
    }

    fn target_owner(&self, name: &str) -> Option<String> {
        let conflict = self
            .index
            .other_binding(&Key::new("a", "other"), &target(name));
        conflict.map(|key| key.to_string())
    }
}

/// VAL-22: the index keeps no large spec, so that its memory stays bounded, but the actor keeps its names.
#[test]
fn large_spec_is_not_kept_but_its_names_stay_taken() {
    let fixture = Fixture::new();
    let mut spec = binding("model");
    spec["runtime"] = json!({"env": [{"name": "LARGE", "value": "x".repeat(MAX_SPEC_BYTES)}]});
    let large = projected("a", "large", &spec);
    assert!(large.actor.spec.is_none());
    fixture.apply(&large);
    assert_eq!(fixture.queue_owner("large").as_deref(), Some("a/large"));
    assert_eq!(fixture.target_owner("model").as_deref(), Some("a/large"));
    assert!(fixture.index.bindings_in("a").is_empty());
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
        let projected: ProjectedActor = serde_json::from_str(&actor.to_string()).unwrap();
        assert_eq!(projected.actor.deleting, deleting, "{actor}");
    }
}

#[test]
fn released_names_and_targets_are_free() {
    let fixture = Fixture::new();
    fixture.apply(&projected("a", "x", &binding("one")));
    assert_eq!(fixture.queue_owner("x").as_deref(), Some("a/x"));
    assert_eq!(fixture.target_owner("one").as_deref(), Some("a/x"));

    fixture.apply(&projected("a", "x", &binding("two")));
    assert_eq!(
        (fixture.target_owner("one"), fixture.target_owner("two")),
        (None, Some("a/x".to_owned()))
    );

    fixture.index.delete(&Key::new("a", "x"));
    assert_eq!(
        (fixture.queue_owner("x"), fixture.target_owner("two")),
        (None, None)
    );
    assert_eq!(fixture.index.len(), 0);
}

#[test]
fn actors_missing_from_a_relist_are_removed() {
    let fixture = Fixture::new();
    fixture.apply(&projected("a", "kept", &json!({"transport": "mq"})));
    fixture.apply(&projected("a", "removed", &json!({"transport": "mq"})));
    assert!(!fixture.index.is_synced());
    fixture.index.init();
    fixture.apply(&projected("a", "kept", &json!({"transport": "mq"})));
    fixture.apply(&projected("a", "added", &json!({"transport": "mq"})));
    // Actors are kept during the list.
    assert!(fixture.queue_owner("removed").is_some());
    fixture.index.init_done();
    assert!(fixture.index.is_synced());
    assert_eq!(fixture.queue_owner("removed"), None);
    assert!(fixture.queue_owner("kept").is_some() && fixture.queue_owner("added").is_some());
}

/// A single object that cannot be decoded would fail every list.
#[test]
fn actor_with_any_spec_and_status_decodes() {
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
        let result: Result<ProjectedActor, _> = serde_json::from_str(&actor.to_string());
        assert!(result.is_ok(), "{actor}: {result:?}");
    }
}

#[test]
fn bindings_are_indexed_by_namespace() {
    let fixture = Fixture::new();
    let names = |namespace: &str| {
        let bindings = fixture.index.bindings_in(namespace);
        let mut names: Vec<_> = bindings.iter().map(|it| it.name.clone()).collect();
        names.sort();
        names
    };
    index_actor(&fixture.index, &bound("a", "one", "x"));
    index_actor(&fixture.index, &bound("a", "two", "y"));
    index_actor(&fixture.index, &bound("b", "three", "x"));
    fixture.apply(&projected(
        "a",
        "standalone",
        &json!({"transport": "mq", "workload": {}}),
    ));
    let mut unreadable = bound("a", "unreadable", "z");
    unreadable["spec"]["timeout"] = json!({"processing": "soon"});
    index_actor(&fixture.index, &unreadable);
    assert_eq!(
        (names("a"), names("b")),
        (
            vec!["one".to_owned(), "two".to_owned()],
            vec!["three".to_owned()]
        )
    );

    // A spec that cannot be decoded still binds its target: only the controller decides about it.
    assert_eq!(fixture.target_owner("z").as_deref(), Some("a/unreadable"));
    fixture.index.delete(&Key::new("a", "one"));
    fixture.index.delete(&Key::new("b", "three"));
    assert_eq!(
        (names("a"), names("b")),
        (vec!["two".to_owned()], Vec::new())
    );
}

#[test]
fn concurrent_reviews_read_the_index() {
    let fixture = Arc::new(Fixture::new());
    fixture.apply(&projected("a", "x", &binding("one")));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    assert!(fixture.queue_owner("x").is_some());
                }
            });
        }
        for _ in 0..1_000 {
            fixture.apply(&projected("a", "x", &binding("one")));
        }
    });
}
