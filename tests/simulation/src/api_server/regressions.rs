//! Cases found by the scenario `simulated_api_server`, in which this server once responded differently from a real one.

use serde_json::{Value, json};

use super::ApiServer;
use super::deletion::Deletion;
use super::id::Id;
use super::managed::Writer;
use super::request::Verb;
use super::resources::{self, Resource};
use super::selector::{Filter, Selector};
use super::status::Failure;
use super::tests::{server, writer};
use super::watch::Watch;

fn id(resource: &'static Resource) -> Id {
    Id::new(resource, "ns", "a")
}

fn create(server: &mut ApiServer, id: &Id, object: Value) -> Value {
    answer(server, Verb::Create(id.clone(), object, writer("user")))
}

fn answer(server: &mut ApiServer, verb: Verb) -> Value {
    server
        .answer(verb, false)
        .unwrap_or_else(|failure| failure.body())
}

fn apply(server: &mut ApiServer, id: &Id, manager: &str, config: Value) -> Result<Value, Failure> {
    server.answer(
        Verb::Apply(id.clone(), config, writer(manager), false),
        false,
    )
}

fn fields(object: &Value, index: usize) -> &Value {
    &object["metadata"]["managedFields"][index]["fieldsV1"]
}

fn causes(failure: &Failure) -> Vec<(&str, &str)> {
    let causes = failure.causes.iter();
    causes
        .map(|(reason, _, field)| (*reason, &**field))
        .collect()
}

#[test]
fn ownership_of_list_elements_depends_on_the_kind() {
    let (mut server, _) = server();
    let named = json!([{"name": "x"}]);
    let pods = json!({"spec": {"containers": named}});
    for (resource, config, expected) in [
        (
            &resources::DEPLOYMENTS,
            json!({"spec": {"template": pods}}),
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}}}}),
        ),
        (
            &resources::SERVICE_ACCOUNTS,
            json!({"imagePullSecrets": named}),
            json!({"f:imagePullSecrets": {}}),
        ),
        (
            &resources::ACTORS,
            json!({"spec": {"workload": {"template": pods}}}),
            json!({"f:spec": {"f:workload": {"f:template": {"f:spec": {".": {}, "f:containers": {}}}}}}),
        ),
        (
            &resources::SCALED_OBJECTS,
            json!({"metadata": {"ownerReferences": [{"uid": "u", "name": "n"}]}}),
            json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}}),
        ),
    ] {
        let applied = apply(&mut server, &id(resource), "one", config).unwrap_or_default();
        assert_eq!(*fields(&applied, 0), expected);
    }
}

#[test]
fn update_owns_the_objects_that_it_adds() {
    let (mut server, _) = server();
    let metadata = json!({"labels": {"a": "b"}});
    let actor = create(
        &mut server,
        &id(&resources::ACTORS),
        json!({"metadata": metadata, "spec": {"transport": "t"}}),
    );
    let labels = json!({"f:labels": {".": {}, "f:a": {}}});
    assert_eq!(
        *fields(&actor, 0),
        json!({"f:metadata": labels, "f:spec": {".": {}, "f:transport": {}}})
    );
    let lease = create(
        &mut server,
        &id(&resources::LEASES),
        json!({"metadata": metadata, "spec": {"holderIdentity": "h"}}),
    );
    assert_eq!(
        *fields(&lease, 0),
        json!({"f:metadata": labels, "f:spec": {"f:holderIdentity": {}}}),
        "a Lease always has a spec"
    );
}

#[test]
fn conflict_names_each_field_before_a_stale_version_counts() {
    let (mut server, id) = server();
    create(
        &mut server,
        &id,
        json!({"metadata": {"labels": {"l": "1"}}, "data": {"x": "1"}}),
    );
    let config =
        json!({"metadata": {"labels": {"l": "2"}, "resourceVersion": "1"}, "data": {"x": "2"}});
    let failure = apply(&mut server, &id, "one", config).unwrap_err();
    let fields = [".data.x", ".metadata.labels.l"];
    assert_eq!(
        causes(&failure),
        fields.map(|field| ("FieldManagerConflict", field))
    );
    let message = &failure.causes[0].1;
    assert!(
        message.starts_with("conflict with \"user\" using v1 at "),
        "{message}"
    );
}

#[test]
fn wrong_uid_makes_an_apply_invalid_and_an_update_stale() {
    let (mut server, id) = server();
    create(&mut server, &id, json!({"metadata": {}}));
    let object = json!({"metadata": {"uid": "other"}});
    let failure = apply(&mut server, &id, "one", object.clone()).unwrap_err();
    assert_eq!(
        (failure.code, causes(&failure)),
        (422, vec![("FieldValueInvalid", "metadata.uid")])
    );
    let updated = answer(&mut server, Verb::Update(id, object, writer("one")));
    assert_eq!(updated["code"], 409);
}

#[test]
fn status_is_applied_whatever_the_uid_and_never_created() {
    let (mut server, _) = server();
    let id = id(&resources::ACTORS);
    let status = Writer {
        status: true,
        ..writer("one")
    };
    let config = json!({"metadata": {"uid": "other"}, "status": {"status": "Running"}});
    let verb = Verb::Apply(id.clone(), config, status.clone(), true);
    assert_eq!(answer(&mut server, verb.clone())["code"], 404);
    create(&mut server, &id, json!({"metadata": {}, "spec": {}}));
    assert_eq!(answer(&mut server, verb)["status"]["status"], "Running");
    let empty = Verb::Apply(id, json!({"metadata": {}}), status, true);
    let entries = answer(&mut server, empty)["metadata"]["managedFields"].clone();
    assert_eq!(entries.as_array().map(Vec::len), Some(1), "{entries}");
}

#[test]
fn update_without_a_version_depends_on_the_kind_and_creates_leases() {
    let (mut server, map) = server();
    let update = |id: &Id, object: Value| Verb::Update(id.clone(), object, writer("one"));
    assert_eq!(
        answer(&mut server, update(&map, json!({"metadata": {}})))["code"],
        404
    );
    create(&mut server, &map, json!({"metadata": {}}));
    let lease = id(&resources::LEASES);
    assert!(
        answer(
            &mut server,
            update(&lease, json!({"metadata": {}, "spec": {}}))
        )["code"]
            .is_null()
    );
    let object = json!({"metadata": {"labels": {"a": "b"}}});
    assert!(answer(&mut server, update(&map, object.clone()))["code"].is_null());
    let actor = id(&resources::ACTORS);
    create(&mut server, &actor, json!({"metadata": {}, "spec": {}}));
    for id in [&lease, &actor] {
        let failure = server
            .answer(update(id, object.clone()), false)
            .unwrap_err();
        assert_eq!(
            causes(&failure),
            [("FieldValueInvalid", "metadata.resourceVersion")]
        );
    }
}

/// Lists `ConfigMap`s, one per page.
fn list(server: &mut ApiServer, labels: &str, fields: &str, token: Option<String>) -> Value {
    let filter = Filter {
        namespace: Some("ns".to_owned()),
        labels: Selector::parse(labels),
        fields: Selector::parse(fields),
    };
    let resource = &resources::CONFIG_MAPS;
    answer(
        server,
        Verb::List {
            resource,
            filter,
            limit: 1,
            token,
        },
    )
}

#[test]
fn pages_of_a_list_end_before_selectors_are_looked_at() {
    let (mut server, _) = server();
    for (name, team) in [("a", "one"), ("b", "two"), ("c", "three")] {
        let id = Id::new(&resources::CONFIG_MAPS, "ns", name);
        create(
            &mut server,
            &id,
            json!({"metadata": {"labels": {"team": team}}}),
        );
    }
    let names = |list: &Value| {
        let items = list["items"].as_array().into_iter().flatten();
        items
            .map(|item| item["metadata"]["name"].clone())
            .collect::<Vec<_>>()
    };
    let first = list(&mut server, "team in (one,other)", "", None);
    assert_eq!(names(&first), ["a"]);
    assert!(
        first["items"][0]["kind"].is_null(),
        "only the list has a kind"
    );
    assert!(first["metadata"]["remainingItemCount"].is_null());
    let token = first["metadata"]["continue"].as_str().map(str::to_owned);
    for _ in 0..2 {
        let rest = list(&mut server, "team in (one,other)", "", token.clone());
        assert_eq!(
            (names(&rest), &rest["metadata"]["continue"]),
            (vec![], &Value::Null)
        );
    }
    assert_eq!(
        names(&list(&mut server, "team notin (one,two)", "", None)),
        ["c"]
    );
    assert_eq!(
        list(&mut server, "", "", None)["metadata"]["remainingItemCount"],
        2
    );
    let one = list(&mut server, "", "metadata.name=a", None);
    assert!(one["metadata"]["continue"].is_null(), "{one}");
}

#[test]
fn deletion_with_orphans_waits_for_the_garbage_collector() {
    let (mut server, owner) = server();
    let uid = create(&mut server, &owner, json!({"metadata": {}}))["metadata"]["uid"].clone();
    let dependent = id(&resources::SECRETS);
    create(
        &mut server,
        &dependent,
        json!({"metadata": {"ownerReferences": [{"uid": uid}]}}),
    );
    let deletion = Deletion {
        propagation: Some("Orphan".to_owned()),
        ..Deletion::default()
    };
    let deleted = answer(&mut server, Verb::Delete(owner.clone(), deletion));
    assert_eq!(deleted["metadata"]["finalizers"], json!(["orphan"]));
    while server.store.collect_garbage() {}
    assert_eq!(server.store.get(&owner), None);
    let kept = server.store.get(&dependent);
    assert!(kept.is_some_and(|it| it["metadata"]["ownerReferences"].is_null()));
}

#[test]
fn deletion_returns_the_object_only_while_it_is_there() {
    let (mut server, id) = server();
    create(
        &mut server,
        &id,
        json!({"metadata": {"finalizers": ["example.com/f"]}}),
    );
    let deleted = answer(&mut server, Verb::Delete(id.clone(), Deletion::default()));
    let version = deleted["metadata"]["resourceVersion"].clone();
    assert_eq!(deleted["kind"], "ConfigMap");
    let more = json!({"metadata": {"finalizers": ["example.com/f", "example.com/g"]}});
    let refused = answer(
        &mut server,
        Verb::MergePatch(id.clone(), more, writer("one")),
    );
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        "metadata.finalizers"
    );
    let none = json!({"metadata": {"finalizers": null, "labels": {"a": "b"}}});
    let last = answer(
        &mut server,
        Verb::MergePatch(id.clone(), none, writer("one")),
    );
    assert_eq!(last["metadata"]["resourceVersion"], version);
    let mut watch = Watch {
        resource: &resources::CONFIG_MAPS,
        filter: Filter::default(),
        version: version
            .as_str()
            .and_then(|it| it.parse().ok())
            .unwrap_or_default(),
        metadata_only: false,
    };
    let event = watch.next(&server.store).ok().flatten();
    let event = event.map(|event| event.value()).unwrap_or_default();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(
        event["object"]["metadata"]["finalizers"],
        json!(["example.com/f"])
    );
    assert_ne!(event["object"]["metadata"]["resourceVersion"], version);
    create(&mut server, &id, json!({"metadata": {}}));
    let gone = answer(&mut server, Verb::Delete(id, Deletion::default()));
    assert_eq!(
        (&gone["kind"], &gone["status"]),
        (&json!("Status"), &json!("Success"))
    );
}

#[test]
fn json_patch_replaces_what_is_missing_and_tests_only_below_what_exists() {
    let (mut server, id) = server();
    create(
        &mut server,
        &id,
        json!({"metadata": {"labels": {"a": "b"}}}),
    );
    let mut patch = |step: Value| {
        answer(
            &mut server,
            Verb::JsonPatch(id.clone(), json!([step]), writer("one")),
        )
    };
    let replaced = patch(json!({"op": "replace", "path": "/metadata/labels/team", "value": "x"}));
    assert_eq!(replaced["metadata"]["labels"]["team"], "x");
    assert!(
        patch(json!({"op": "test", "path": "/metadata/finalizers", "value": null}))["code"]
            .is_null()
    );
    assert_eq!(
        patch(json!({"op": "test", "path": "/metadata/annotations/a", "value": null}))["code"],
        422
    );
}

#[test]
fn deployment_has_replicas_and_counts_changes_of_annotations() {
    let (mut server, _) = server();
    for (resource, generation) in [(&resources::DEPLOYMENTS, 2), (&resources::STATEFUL_SETS, 1)] {
        let id = id(resource);
        assert_eq!(
            create(&mut server, &id, json!({"metadata": {}, "spec": {}}))["spec"]["replicas"],
            1
        );
        let patch = json!({"metadata": {"annotations": {"a": "b"}}});
        let patched = answer(&mut server, Verb::MergePatch(id, patch, writer("one")));
        assert_eq!(patched["metadata"]["generation"], generation);
    }
}

#[test]
fn apply_orders_common_elements_as_it_names_them() {
    let (mut server, _) = server();
    let id = id(&resources::DEPLOYMENTS);
    let with = |names: &[&str]| {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"containers": containers}}}})
    };
    create(&mut server, &id, with(&["a", "b", "c"]));
    let applied = apply(&mut server, &id, "one", with(&["c", "d", "a"])).unwrap_or_default();
    let merged = &applied["spec"]["template"]["spec"]["containers"];
    assert_eq!(
        *merged,
        with(&["b", "c", "d", "a"])["spec"]["template"]["spec"]["containers"]
    );
}

#[test]
fn owners_are_kept_by_an_update_that_names_none() {
    let (mut server, id) = server();
    apply(
        &mut server,
        &id,
        "one",
        json!({"metadata": {}, "data": {"x": "1"}}),
    )
    .unwrap_or_default();
    let object = json!({"metadata": {}, "data": {"x": "1", "y": "1"}});
    let updated = answer(&mut server, Verb::Update(id, object, writer("two")));
    assert_eq!(*fields(&updated, 0), json!({"f:data": {"f:x": {}}}));
}

#[test]
fn owners_of_an_object_without_any_are_recorded_from_the_next_apply_on() {
    let (mut server, id) = server();
    let created = create(&mut server, &id, json!({"metadata": {}}));
    assert!(created["metadata"]["managedFields"].is_null());
    let patch = json!({"data": {"x": "1"}});
    let patched = answer(
        &mut server,
        Verb::MergePatch(id.clone(), patch, writer("one")),
    );
    assert!(patched["metadata"]["managedFields"].is_null());
    let applied = apply(
        &mut server,
        &id,
        "two",
        json!({"metadata": {}, "data": {"y": "1"}}),
    )
    .unwrap_or_default();
    assert_eq!(
        applied["metadata"]["managedFields"][1]["manager"],
        "before-first-apply"
    );
    assert_eq!(
        *fields(&applied, 1),
        json!({"f:data": {".": {}, "f:x": {}}})
    );
}

#[test]
fn of_two_entries_of_a_manager_the_second_counts() {
    let (mut server, id) = server();
    apply(
        &mut server,
        &id,
        "one",
        json!({"metadata": {}, "data": {"x": "1"}}),
    )
    .unwrap_or_default();
    let patch = json!({"data": {"y": "1"}});
    answer(
        &mut server,
        Verb::MergePatch(id.clone(), patch, writer("two")),
    );
    let at = |field: &str| format!("/metadata/managedFields/1/{field}");
    let take_over = json!([
        {"op": "replace", "path": at("manager"), "value": "one"},
        {"op": "replace", "path": at("operation"), "value": "Apply"},
    ]);
    let taken = answer(&mut server, Verb::JsonPatch(id, take_over, writer("one")));
    assert_eq!(*fields(&taken, 0), json!({"f:data": {"f:y": {}}}));
    assert_eq!(*fields(&taken, 1), Value::Null);
}

/// The user still owns the emptied object, though nothing in it.
#[test]
fn what_an_apply_empties_stays_in_a_custom_resource_until_the_next_update() {
    let (mut server, _) = server();
    let id = id(&resources::ACTORS);
    let config = |note: &str| json!({"metadata": {"annotations": {"note": note}}, "spec": {}});
    create(&mut server, &id, config("1"));
    let mut force = |config| {
        answer(
            &mut server,
            Verb::Apply(id.clone(), config, writer("one"), true),
        )
    };
    force(config("2"));
    let emptied = force(json!({"metadata": {}, "spec": {}}));
    let updated = answer(&mut server, Verb::MergePatch(id, json!({}), writer("two")));
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        emptied["metadata"]["resourceVersion"]
    );
    assert_eq!(
        fields(&updated, 1)["f:metadata"],
        json!({"f:annotations": {}})
    );
}
