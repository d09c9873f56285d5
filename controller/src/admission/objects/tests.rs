use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde_json::{Value, json};

use super::{Step, Wanted, decide, is_of};
use crate::record::{ConfigurationRecord, Content, Seen};

fn content(change: impl FnOnce(&mut Value)) -> Content {
    let mut object = object();
    change(&mut object);
    seen(&object).content.clone()
}

/// CFG-9
#[test]
fn what_was_taken_back_is_restored_and_its_writer_named() {
    let policy = |to: &str| content(|it| it["webhooks"][0]["failurePolicy"] = json!(to));
    let (wanted, other, earlier) = (policy("Fail"), policy("Other"), policy("Ignore"));
    let rival = || Some((&other, Some("kubectl-edit")));
    let table = [
        (None, None, Step::Apply),
        (None, rival(), Step::Apply),
        (None, Some((&wanted, None)), Step::Keep),
        (
            Some(&wanted),
            Some((&wanted, Some("kubectl-edit"))),
            Step::Keep,
        ),
        (
            Some(&wanted),
            rival(),
            Step::Heal(Some("kubectl-edit".into())),
        ),
        (Some(&wanted), None, Step::Heal(None)),
        (Some(&earlier), rival(), Step::Apply),
        (Some(&earlier), None, Step::Apply),
    ];
    for (row, (applied, live, step)) in table.into_iter().enumerate() {
        assert_eq!(decide(applied, &wanted, live), step, "row {row}");
    }
}

/// CFG-9, ADM-24
#[test]
fn terms_that_others_add_to_a_namespace_selector_are_left_alone() {
    let ours = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]});
    let other = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["b"]});
    let theirs = json!({"key": "control-plane", "operator": "DoesNotExist"});
    let with = |selector: Value| content(|it| it["webhooks"][0]["namespaceSelector"] = selector);
    let wanted = with(json!({"matchExpressions": [ours]}));
    for (selector, step) in [
        (json!({"matchExpressions": [ours]}), Step::Keep),
        (json!({"matchExpressions": [theirs, ours]}), Step::Keep),
        (
            json!({"matchExpressions": [ours], "matchLabels": {"a": "b"}}),
            Step::Keep,
        ),
        (json!({"matchExpressions": [theirs]}), Step::Heal(None)),
        (json!({"matchExpressions": [other]}), Step::Heal(None)),
        (json!({}), Step::Heal(None)),
        (json!(null), Step::Heal(None)),
    ] {
        let live = with(selector.clone());
        let decided = decide(Some(&wanted), &wanted, Some((&live, None)));
        assert_eq!(decided, step, "{selector}");
    }
    // The validator asks for nothing, so every term is another's.
    let nothing = with(json!({}));
    let added = with(json!({"matchExpressions": [theirs]}));
    assert_eq!(decide(None, &nothing, Some((&added, None))), Step::Keep);
}

#[test]
fn objects_of_other_releases_are_not_ours() {
    for (name, ours) in [
        ("asya-injector", true),
        ("asya-injector-2", true),
        ("asya-validator", true),
        ("asya-injector-x", false),
        ("asya-2-injector", false),
        ("other-injector", false),
    ] {
        assert_eq!(is_of("asya", name), ours, "{name}");
    }
}

fn object() -> Value {
    let entry = |name: &str, policy: &str| json!({"name": name, "failurePolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"caBundle": "UEVN", "url": "https://h/x"}});
    json!({
        "metadata": {
            "name": "asya-injector", "uid": "u", "resourceVersion": "3", "labels": {"app.kubernetes.io/managed-by": "asya-operator"},
            "ownerReferences": [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "anchor", "uid": "1"}],
            "managedFields": [
                {"manager": "asya-operator/admission", "time": "2026-01-03T00:00:00Z"},
                {"manager": "older", "time": "2026-01-01T00:00:00Z"},
                {"manager": "kubectl-edit", "time": "2026-01-02T00:00:00Z"},
            ],
        },
        "webhooks": [entry("a", "Ignore"), entry("b", "Fail")],
    })
}

fn seen(object: &Value) -> std::sync::Arc<ConfigurationRecord<MutatingWebhookConfiguration>> {
    let seen: Seen<_> = serde_json::from_str(&object.to_string()).unwrap();
    seen.record
}

/// CFG-9
#[test]
fn every_change_of_what_we_say_is_seen_and_no_other() {
    let same = seen(&object());
    assert_eq!(
        (same.writer.as_deref(), &*same.failing),
        (Some("kubectl-edit"), &["b".into()][..])
    );
    assert_eq!(
        same.bundles.iter().map(|it| &**it).collect::<Vec<_>>(),
        [b"PEM"]
    );
    let typed: MutatingWebhookConfiguration = serde_json::from_value(object()).unwrap();
    assert_eq!(same.content, Content::of(&typed));
    assert_eq!(Wanted::new(&typed).content, same.content);
    for (path, value, differs) in [
        ("/webhooks/0/failurePolicy", json!("Fail"), true),
        ("/webhooks/0/clientConfig/caBundle", json!("UEVO"), true),
        ("/webhooks", json!([]), true),
        ("/metadata/ownerReferences/0/uid", json!("2"), true),
        ("/metadata/labels", json!({}), true),
        ("/metadata/resourceVersion", json!("4"), false),
        ("/metadata/managedFields", json!([]), false),
    ] {
        let mut other = object();
        *other.pointer_mut(path).unwrap() = value;
        assert_eq!(seen(&other).content != same.content, differs, "{path}");
    }
    let mut turned = object();
    turned["webhooks"].as_array_mut().unwrap().reverse();
    turned["metadata"]["labels"]["theirs"] = json!("x");
    assert_eq!(seen(&turned).content, same.content);
}
