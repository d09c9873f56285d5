use serde_json::{Value, json};

use super::ApiServer;
use super::deletion::Deletion;
use super::id::Id;
use super::managed::Writer;
use super::request::Verb;
use super::resources;
use super::status::Failure;

pub(super) fn writer(manager: &str) -> Writer {
    Writer {
        manager: manager.to_owned(),
        status: false,
    }
}

/// A server with a namespace, and the id of a `ConfigMap` there.
pub(super) fn server() -> (ApiServer, Id) {
    let mut server = ApiServer::default();
    server.store.install_crd(&resources::SCALED_OBJECTS);
    let namespace = Id::new(&resources::NAMESPACES, "", "ns");
    let created = server
        .store
        .create(&namespace, json!({"metadata": {}}), &writer("kubectl"));
    assert!(created.is_ok(), "{created:?}");
    (server, Id::new(&resources::CONFIG_MAPS, "ns", "map"))
}

fn config(metadata: &Value, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

#[test]
fn apply_removes_what_it_no_longer_contains_and_keeps_what_others_own() {
    let (mut server, id) = server();
    let mut apply = |manager: &str, data: &Value| {
        let config = config(&json!({}), data);
        let verb = Verb::Apply(id.clone(), config, writer(manager), false);
        server
            .answer(verb, false)
            .map(|object| object["data"].clone())
            .map_err(|failure| failure.code)
    };
    assert_eq!(
        apply("a", &json!({"x": "1", "y": "1"})),
        Ok(json!({"x": "1", "y": "1"}))
    );
    assert_eq!(
        apply("b", &json!({"y": "1"})),
        Ok(json!({"x": "1", "y": "1"}))
    );
    assert_eq!(apply("b", &json!({"x": "2"})), Err(409));
    assert_eq!(
        apply("a", &json!({"x": "1"})),
        Ok(json!({"x": "1", "y": "1"})),
        "b still owns y"
    );
    assert_eq!(
        apply("b", &json!({"z": "1"})),
        Ok(json!({"x": "1", "z": "1"}))
    );
}

#[test]
fn update_takes_fields_from_the_manager_that_applied_them() {
    let (mut server, id) = server();
    let applied = config(&json!({}), &json!({"x": "1", "y": "1"}));
    let answer = server.answer(Verb::Apply(id.clone(), applied, writer("a"), true), false);
    assert!(answer.is_ok(), "{answer:?}");
    let patch = json!({"data": {"x": "2"}});
    let answer = server.answer(Verb::MergePatch(id, patch, writer("b")), false);
    let fields = answer
        .map(|object| object["metadata"]["managedFields"].clone())
        .unwrap_or_default();
    let owned = |index: usize| {
        (
            fields[index]["manager"].clone(),
            fields[index]["fieldsV1"].clone(),
        )
    };
    assert_eq!(owned(0), (json!("a"), json!({"f:data": {"f:y": {}}})));
    assert_eq!(owned(1), (json!("b"), json!({"f:data": {"f:x": {}}})));
}

/// This is how the controller creates objects without a race.
#[test]
fn apply_with_a_version_creates_an_object_and_never_changes_one() {
    let (mut server, id) = server();
    let metadata = json!({"resourceVersion": "1"});
    let verb = || {
        Verb::Apply(
            id.clone(),
            config(&metadata, &json!({"x": "1"})),
            writer("a"),
            true,
        )
    };
    assert!(server.answer(verb(), false).is_ok());
    assert_eq!(
        server.answer(verb(), false).map_err(|failure| failure.code),
        Err(409)
    );
}

#[test]
fn object_with_a_finalizer_goes_with_its_last_finalizer() {
    let (mut server, id) = server();
    let object = config(&json!({"finalizers": ["example.com/f"]}), &json!({}));
    assert!(server.store.create(&id, object, &writer("a")).is_ok());
    assert!(server.store.delete(&id, &Deletion::default()).is_ok());
    assert!(
        server
            .store
            .get(&id)
            .is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
    );
    let patch = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    assert!(
        server
            .answer(Verb::JsonPatch(id.clone(), patch, writer("a")), false)
            .is_ok()
    );
    assert_eq!(server.store.get(&id), None);
}

#[test]
fn dependents_go_with_their_owner() {
    let (mut server, id) = server();
    let owner = server
        .store
        .create(&id, config(&json!({}), &json!({})), &writer("a"));
    let uid = owner
        .map(|owner| owner["metadata"]["uid"].clone())
        .unwrap_or_default();
    let dependent = Id::new(&resources::CONFIG_MAPS, "ns", "dependent");
    let metadata = json!({"ownerReferences": [{"uid": uid}]});
    assert!(
        server
            .store
            .create(&dependent, config(&metadata, &json!({})), &writer("a"))
            .is_ok()
    );
    assert!(!server.store.collect_garbage());
    assert!(server.store.delete(&id, &Deletion::default()).is_ok());
    assert!(server.store.collect_garbage());
    assert_eq!(server.store.get(&dependent), None);
}

/// As in `docs/kubernetes-facts.md`, section 9, for Kubernetes 1.36, and for 1.33 and older.
#[test]
fn crd_that_is_deleted_takes_no_new_object_and_goes_with_its_last() {
    for applies in [false, true] {
        let (mut server, _) = server();
        server.applies_while_terminating = applies;
        let [old, new] = ["old", "new"].map(|name| Id::new(&resources::SCALED_OBJECTS, "ns", name));
        let config = json!({"metadata": {"finalizers": ["example.com/keep"]}, "spec": {}});
        let apply = |server: &mut ApiServer, id: &Id, config: &Value| {
            let verb = Verb::Apply(id.clone(), config.clone(), writer("one"), true);
            server.answer(verb, false)
        };
        assert!(apply(&mut server, &old, &config).is_ok());
        server.store.delete_crd(&resources::SCALED_OBJECTS);
        server.store.finish_crds();
        let created = apply(&mut server, &new, &json!({"spec": {}}));
        assert_eq!(created.is_ok(), applies, "{created:?}");
        server.store.finish_crds();
        assert!(
            server.answer(Verb::Get(old.clone()), false).is_ok(),
            "has a finalizer"
        );
        let released = json!({"metadata": {"finalizers": []}, "spec": {}});
        assert!(apply(&mut server, &old, &released).is_ok());
        server.store.finish_crds();
        let gone = server.answer(Verb::Get(old), false);
        assert_eq!(gone, Err(Failure::no_such_path()));
    }
}
