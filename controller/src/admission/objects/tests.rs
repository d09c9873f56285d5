use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde_json::{Value, json};

use super::{EntryStep, Wanted, decide, is_of};
use crate::record::{ConfigurationRecord, Content, Projected};

fn content(change: impl FnOnce(&mut Value)) -> Content {
    let mut object = object();
    change(&mut object);
    seen(&object).content.clone()
}

/// CFG-9
#[test]
fn reverted_object_is_restored_and_names_the_field_manager() {
    let policy = |to: &str| content(|it| it["webhooks"][0]["failurePolicy"] = json!(to));
    let (wanted, other, earlier) = (policy("Fail"), policy("Other"), policy("Ignore"));
    let rival = || Some((&other, Some("kubectl-edit")));
    let table = [
        (None, None, EntryStep::Apply),
        (None, rival(), EntryStep::Apply),
        (None, Some((&wanted, None)), EntryStep::Keep),
        (
            Some(&wanted),
            Some((&wanted, Some("kubectl-edit"))),
            EntryStep::Keep,
        ),
        (
            Some(&wanted),
            rival(),
            EntryStep::Heal(Some("kubectl-edit".into())),
        ),
        (Some(&wanted), None, EntryStep::Heal(None)),
        (Some(&earlier), rival(), EntryStep::Apply),
        (Some(&earlier), None, EntryStep::Apply),
    ];
    for (row, (applied, live, step)) in table.into_iter().enumerate() {
        assert_eq!(decide(applied, &wanted, live), step, "row {row}");
    }
}

/// CFG-9, ADM-24
#[test]
fn terms_added_to_a_namespace_selector_are_kept() {
    let ours = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]});
    let other = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["b"]});
    let theirs = json!({"key": "control-plane", "operator": "DoesNotExist"});
    let with = |selector: Value| content(|it| it["webhooks"][0]["namespaceSelector"] = selector);
    let wanted = with(json!({"matchExpressions": [ours]}));
    for (selector, step) in [
        (json!({"matchExpressions": [ours]}), EntryStep::Keep),
        (json!({"matchExpressions": [theirs, ours]}), EntryStep::Keep),
        (
            json!({"matchExpressions": [ours], "matchLabels": {"a": "b"}}),
            EntryStep::Keep,
        ),
        (json!({"matchExpressions": [theirs]}), EntryStep::Heal(None)),
        (json!({"matchExpressions": [other]}), EntryStep::Heal(None)),
        (json!({}), EntryStep::Heal(None)),
        (json!(null), EntryStep::Heal(None)),
    ] {
        let live = with(selector.clone());
        let decided = decide(Some(&wanted), &wanted, Some((&live, None)));
        assert_eq!(decided, step, "{selector}");
    }
    // The validator wants no terms, so every term comes from another field manager.
    let nothing = with(json!({}));
    let added = with(json!({"matchExpressions": [theirs]}));
    assert_eq!(
        decide(None, &nothing, Some((&added, None))),
        EntryStep::Keep
    );
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
    let seen: Projected<_> = serde_json::from_str(&object.to_string()).unwrap();
    seen.record
}

/// CFG-9
#[test]
fn content_differs_only_by_what_we_apply() {
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
