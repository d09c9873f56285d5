use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::json;

use super::{KnownNamespaces, Store};
use crate::cluster::watch_scope::WatchScope;
use crate::record::{ActorRecord, Enqueue, Key, PodRecord, Projected, TypedWorkload};

fn pod(name: &str, actor: &str, uid: &str, version: u64, ready: bool) -> Projected<PodRecord> {
    let ready = if ready { "True" } else { "False" };
    let text = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(), "labels": {"asya.sh/asya": actor}},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    });
    serde_json::from_str(&text.to_string()).unwrap()
}

fn enqueue(actor: &str) -> Enqueue {
    Enqueue::Actor(Key::new("ns", actor))
}

fn names(store: &Store<PodRecord>, actor: &str) -> Vec<String> {
    let mut names: Vec<_> = store
        .of_actor(&Key::new("ns", actor))
        .iter()
        .map(|pod| pod.metadata.key.name.to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn unchanged_record_enqueues_nothing() {
    let store = Store::default();
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 1, false)),
        [enqueue("a")]
    );
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 2, false)),
        []
    );
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 3, true)),
        [enqueue("a")]
    );
}

#[test]
fn object_moved_to_another_actor_enqueues_both() {
    let store = Store::default();
    store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 1, true));
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("p", "b", "u", 2, true)),
        [enqueue("a"), enqueue("b")]
    );
    assert_eq!(names(&store, "a"), [""; 0]);
    assert_eq!(names(&store, "b"), ["p"]);
}

/// FW-9
#[test]
fn relist_enqueues_actors_of_changed_and_deleted_objects() {
    let store = Store::default();
    for (name, actor) in [("same", "a"), ("changed", "b"), ("gone", "c")] {
        store.apply(&WatchScope::Cluster, &pod(name, actor, name, 1, false));
    }
    store.init(&WatchScope::Cluster);
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("same", "a", "same", 1, false)),
        []
    );
    assert_eq!(
        store.apply(
            &WatchScope::Cluster,
            &pod("changed", "b", "changed", 5, true)
        ),
        [enqueue("b")]
    );
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("new", "d", "new", 6, true)),
        [enqueue("d")]
    );
    assert_eq!(store.init_done(&WatchScope::Cluster), [enqueue("c")]);
    assert_eq!(store.len(), 3);
}

#[test]
fn relist_of_one_namespace_leaves_the_others_alone() {
    let store = Store::default();
    store.apply(
        &WatchScope::Namespace("ns".into()),
        &pod("p", "a", "u", 1, true),
    );
    store.init(&WatchScope::Namespace("other".into()));
    assert_eq!(store.init_done(&WatchScope::Namespace("other".into())), []);
    assert_eq!(store.len(), 1);
}

#[test]
fn write_response_is_kept_until_the_watch_catches_up() {
    let store = Store::default();
    store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 5, false));
    store.apply_response(&pod("p", "a", "u", 8, true));
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 7, false)),
        [],
        "an older event changes nothing"
    );
    assert!(store.get(&Key::new("ns", "p")).unwrap().ready);
    assert_eq!(
        store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 8, true)),
        [],
        "neither does the event of the operator's own write"
    );
}

#[test]
fn late_write_response_does_not_restore_a_deleted_object() {
    let store = Store::default();
    store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 5, false));
    store.delete(&WatchScope::Cluster, &pod("p", "a", "u", 9, false));
    store.apply_response(&pod("p", "a", "u", 8, true));
    assert!(store.get(&Key::new("ns", "p")).is_none());
}

#[test]
fn deletion_of_an_earlier_object_does_not_remove_its_successor() {
    let store = Store::default();
    store.apply_response(&pod("p", "a", "second", 9, true));
    assert_eq!(
        store.delete(&WatchScope::Cluster, &pod("p", "a", "first", 8, true)),
        []
    );
    assert_eq!(
        &*store.get(&Key::new("ns", "p")).unwrap().metadata.uid,
        "second"
    );
    assert_eq!(
        store.delete(&WatchScope::Cluster, &pod("p", "a", "second", 10, true)),
        [enqueue("a")]
    );
    assert_eq!(names(&store, "a"), [""; 0]);
}

/// FW-13
#[test]
fn namespace_that_is_no_longer_watched_leaves_no_records() {
    let store = Store::default();
    store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 5, true));
    let all = [WatchScope::Cluster].into();
    assert_eq!(store.retain_scopes(&all), []);
    let other = [WatchScope::Namespace("other".into())].into();
    assert_eq!(store.retain_scopes(&other), [Key::new("ns", "p")]);
    assert_eq!(names(&store, "a"), [""; 0]);
    store.apply_response(&pod("p", "a", "u", 4, true));
    assert_eq!(store.len(), 1, "versions of the ended watch are forgotten");
}

#[test]
fn records_are_shared_not_copied() {
    let store = Store::default();
    store.apply(&WatchScope::Cluster, &pod("p", "a", "u", 1, true));
    let key = Key::new("ns", "p");
    assert!(Arc::ptr_eq(
        &store.get(&key).unwrap(),
        &store.of_actor(&Key::new("ns", "a"))[0]
    ));
}

/// FW-13
#[test]
fn write_response_does_not_restore_an_object_of_a_namespace_that_is_no_longer_watched() {
    let store = Store::default();
    let scope = |name: &str| WatchScope::Namespace(Arc::from(name));
    for namespace in ["ns", "other"] {
        store.list_pending(&scope(namespace));
    }
    let response = pod("a-1", "a", "1", 7, true);
    store.apply_response(&response);
    assert_eq!(names(&store, "a"), ["a-1"]);
    store.retain_scopes(&[scope("other")].into());
    store.apply_response(&response);
    assert_eq!(names(&store, "a"), [""; 0]);
}

/// FW-9, FW-13
#[test]
fn absence_is_known_once_the_namespace_was_listed() {
    let store = Store::<PodRecord>::default();
    let ns = |name: &str| WatchScope::Namespace(Arc::from(name));
    let (one, other) = (ns("one"), ns("other"));
    let synced = || (store.is_synced("one"), store.is_synced("other"));
    assert_eq!(
        (synced(), store.has_pending_lists()),
        ((false, false), false)
    );
    store.list_pending(&one);
    store.list_pending(&other);
    assert_eq!(
        (synced(), store.has_pending_lists()),
        ((false, false), true)
    );
    assert!(store.list_completed(&one), "the first list is reported");
    assert!(!store.list_completed(&one), "later lists are not");
    assert_eq!((synced(), store.has_pending_lists()), ((true, false), true));
    store.list_failed(&other);
    assert_eq!(
        (synced(), store.has_pending_lists()),
        ((true, false), false)
    );
    assert!(store.list_completed(&other));

    store.retain_scopes(&[other.clone()].into());
    assert_eq!(synced(), (false, true), "its list is no longer known");
    store.kind_removed(&other);
    assert_eq!(synced(), (false, false));
    store.list_completed(&WatchScope::Cluster);
    assert_eq!(synced(), (true, true), "the whole cluster");
}

/// FIN-2, STA-1: no event would report its deletion, so the record would stay forever.
#[test]
fn write_response_for_an_unwatched_object_is_not_stored() {
    let stored = |labels: serde_json::Value| {
        let text = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels}});
        let projected: Projected<TypedWorkload<Deployment>> =
            serde_json::from_str(&text.to_string()).unwrap();
        let store = Store::default();
        store.apply_response(&projected);
        store.len()
    };
    assert_eq!(
        stored(json!({"app.kubernetes.io/managed-by": "asya-operator"})),
        1
    );
    assert_eq!(
        stored(json!({"app.kubernetes.io/managed-by": "asya-gateway"})),
        0
    );
    assert_eq!(stored(json!({})), 0);
}

/// CFG-2, CFG-12
#[test]
fn known_namespaces_are_those_listed_once_no_first_list_is_pending() {
    let store = Store::<PodRecord>::default();
    let [one, other] = ["one", "other"].map(|name| WatchScope::Namespace(Arc::from(name)));
    let known = Store::<PodRecord>::known_namespaces;
    let only = |names: &[&str]| {
        let names = names.iter().map(|name| Arc::from(*name));
        Some(KnownNamespaces::Only(names.collect()))
    };
    assert_eq!(known(&store), None, "no list has started");
    store.list_pending(&one);
    store.list_pending(&other);
    store.list_completed(&one);
    assert_eq!(known(&store), None, "one list is pending");
    store.list_failed(&other);
    assert_eq!(known(&store), only(&["one"]), "it does not block others");
    store.list_completed(&other);
    assert_eq!(known(&store), only(&["one", "other"]));
    store.retain_scopes(&[other].into());
    assert_eq!(known(&store), only(&["other"]), "FW-13");

    let store = Store::<PodRecord>::default();
    store.list_pending(&WatchScope::Cluster);
    store.list_failed(&WatchScope::Cluster);
    assert_eq!(known(&store), None, "no list has completed");
    store.list_completed(&WatchScope::Cluster);
    assert_eq!(known(&store), Some(KnownNamespaces::All));
}

/// KEDA-7: the response to a write may arrive after the kind was removed, of which no event reports more.
#[test]
fn response_to_a_write_is_ignored_while_its_kind_is_not_served() {
    let store = Store::<PodRecord>::default();
    let all = WatchScope::Cluster;
    store.list_pending(&all);
    store.list_completed(&all);
    store.kind_removed(&all);
    store.apply_response(&pod("p", "a", "u", 8, true));
    assert_eq!(store.len(), 0);
    assert_eq!(store.known_namespaces(), None);
    assert!(!store.has_pending_lists() && !store.is_synced("ns"));

    store.list_pending(&all);
    store.apply_response(&pod("p", "a", "u", 9, true));
    assert_eq!(store.len(), 1);
    assert!(store.list_completed(&all), "it is the first one again");
}

/// FW-23 (g): a binding without a `ScaledObject` has no object whose lost owner would say that it was orphaned.
#[test]
fn actor_that_is_being_orphaned_stays_so_once_the_garbage_collector_has_removed_its_finalizer() {
    let actor = |uid: &str, version: u64, finalizers: &[&str], spec: &str| {
        let deleted = (!finalizers.is_empty()).then_some("2026-01-01T00:00:00Z");
        let text = json!({
            "metadata": {
                "name": "a", "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(),
                "deletionTimestamp": deleted, "finalizers": finalizers,
            },
            "spec": {"deletionPolicy": spec},
        });
        serde_json::from_str::<Projected<ActorRecord>>(&text.to_string()).unwrap()
    };
    let orphaned = actor("u", 2, &["asya.sh/finalizer", "orphan"], "Delete");
    let released = actor("u", 3, &["asya.sh/finalizer"], "Delete");
    let by_policy = actor("u", 2, &["asya.sh/finalizer"], "Orphan");
    let living = actor("u", 1, &[], "Orphan");
    let another = actor("v", 3, &["asya.sh/finalizer"], "Delete");
    let later = actor("u", 4, &["asya.sh/finalizer"], "Delete");
    for (case, versions, orphans) in [
        ("in order", vec![&orphaned, &released, &later], true),
        ("by policy", vec![&by_policy, &released], true),
        ("overtaken", vec![&released, &orphaned, &later], true),
        ("not orphaned", vec![&released], false),
        ("changed before", vec![&living, &released], false),
        ("recreated", vec![&orphaned, &another], false),
    ] {
        let store = Store::default();
        let newest = versions
            .iter()
            .map(|it| it.record.metadata.resource_version);
        let newest = newest.max().unwrap();
        for version in versions {
            store.init(&WatchScope::Cluster);
            store.apply(&WatchScope::Cluster, version);
            store.init_done(&WatchScope::Cluster);
        }
        let stored = store.get(&Key::new("ns", "a")).unwrap();
        assert_eq!(stored.deletion.orphans, orphans, "{case}");
        assert_eq!(stored.metadata.resource_version, newest, "{case}");
    }
    let store = Store::default();
    let apply = |version| store.apply(&WatchScope::Cluster, version);
    apply(&released);
    assert_eq!(apply(&orphaned), [enqueue("a")], "it is news");
    assert_eq!(apply(&orphaned), []);
}
