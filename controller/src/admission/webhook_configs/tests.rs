use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde_json::{Value, json};

use super::{ConfigStep, DesiredConfig, belongs_to_release, decide};
use crate::record::{Content, Projected, WebhookConfigurationRecord};

fn content(change: impl FnOnce(&mut Value)) -> Content {
    let mut object = object();
    change(&mut object);
    record(&object).content.clone()
}

/// CFG-9
#[test]
fn reverted_object_is_restored_and_names_the_field_manager() {
    let policy = |to: &str| content(|object| object["webhooks"][0]["failurePolicy"] = json!(to));
    let desired = policy("Fail");
    let other = policy("Other");
    let earlier = policy("Ignore");
    let reverted = || Some((&other, Some("kubectl-edit")));
    let table = [
        (None, None, ConfigStep::Apply),
        (None, reverted(), ConfigStep::Apply),
        (None, Some((&desired, None)), ConfigStep::Unchanged),
        (
            Some(&desired),
            Some((&desired, Some("kubectl-edit"))),
            ConfigStep::Unchanged,
        ),
        (
            Some(&desired),
            reverted(),
            ConfigStep::Restore(Some("kubectl-edit".into())),
        ),
        (Some(&desired), None, ConfigStep::Restore(None)),
        (Some(&earlier), reverted(), ConfigStep::Apply),
        (Some(&earlier), None, ConfigStep::Apply),
    ];
    for (row, (applied, existing, step)) in table.into_iter().enumerate() {
        assert_eq!(decide(applied, &desired, existing), step, "row {row}");
    }
}

/// CFG-9, ADM-24
#[test]
fn terms_added_to_a_namespace_selector_are_kept() {
    let own = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a"]});
    let other = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["b"]});
    let foreign = json!({"key": "control-plane", "operator": "DoesNotExist"});
    let with =
        |selector: Value| content(|object| object["webhooks"][0]["namespaceSelector"] = selector);
    let desired = with(json!({"matchExpressions": [own]}));
    for (selector, step) in [
        (json!({"matchExpressions": [own]}), ConfigStep::Unchanged),
        (
            json!({"matchExpressions": [foreign, own]}),
            ConfigStep::Unchanged,
        ),
        (
            json!({"matchExpressions": [own], "matchLabels": {"a": "b"}}),
            ConfigStep::Unchanged,
        ),
        (
            json!({"matchExpressions": [foreign]}),
            ConfigStep::Restore(None),
        ),
        (
            json!({"matchExpressions": [other]}),
            ConfigStep::Restore(None),
        ),
        (json!({}), ConfigStep::Restore(None)),
        (json!(null), ConfigStep::Restore(None)),
    ] {
        let existing = with(selector.clone());
        let decided = decide(Some(&desired), &desired, Some((&existing, None)));
        assert_eq!(decided, step, "{selector}");
    }
    // The validator sets no terms, so every term comes from another field manager.
    let nothing = with(json!({}));
    let added = with(json!({"matchExpressions": [foreign]}));
    assert_eq!(
        decide(None, &nothing, Some((&added, None))),
        ConfigStep::Unchanged
    );
}

#[test]
fn objects_of_other_releases_are_ignored() {
    for (name, belongs) in [
        ("asya-injector", true),
        ("asya-injector-2", true),
        ("asya-validator", true),
        ("asya-injector-x", false),
        ("asya-2-injector", false),
        ("other-injector", false),
    ] {
        assert_eq!(belongs_to_release("asya", name), belongs, "{name}");
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

fn record(
    object: &Value,
) -> std::sync::Arc<WebhookConfigurationRecord<MutatingWebhookConfiguration>> {
    let projected: Projected<_> = serde_json::from_str(&object.to_string()).unwrap();
    projected.record
}

/// CFG-9
#[test]
fn content_differs_only_in_applied_fields() {
    let original = record(&object());
    assert_eq!(
        (original.writer.as_deref(), &*original.fail_closed),
        (Some("kubectl-edit"), &["b".into()][..])
    );
    assert_eq!(
        original
            .bundles
            .iter()
            .map(|bundle| &**bundle)
            .collect::<Vec<_>>(),
        [b"PEM"]
    );
    let typed: MutatingWebhookConfiguration = serde_json::from_value(object()).unwrap();
    assert_eq!(original.content, Content::of(&typed));
    assert_eq!(DesiredConfig::new(&typed).content, original.content);
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
        assert_eq!(
            record(&other).content != original.content,
            differs,
            "{path}"
        );
    }
    let mut reordered = object();
    reordered["webhooks"].as_array_mut().unwrap().reverse();
    reordered["metadata"]["labels"]["theirs"] = json!("x");
    assert_eq!(record(&reordered).content, original.content);
}
