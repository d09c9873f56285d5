use kube::Client;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::{ApplyError, ForeignApply, first_removed};

const MANAGER: &str = "asya-operator/parent";

/// An object in which `MANAGER` owns the field set `owned`.
fn target(owned: &Value, spec: &Value) -> Value {
    let entry = json!({"manager": MANAGER, "operation": "Apply", "fieldsV1": owned});
    json!({
        "kind": "Thing",
        "metadata": {
            "name": "a", "resourceVersion": "1", "generation": 1, "managedFields": [entry],
            "annotations": {"asya.sh/x": "1"},
        },
        "spec": spec,
    })
}

/// SAFE-41
#[test]
fn fields_that_an_apply_would_remove_are_detected() {
    let container = |name: &str| json!({"name": name, "env": [{"name": "A"}]});
    for (previous, after, expected) in [
        // Added, changed and unchanged fields.
        (json!({"a": 1}), json!({"a": 2, "b": 3}), None),
        (
            json!({"a": {"b": [1, 2]}}),
            json!({"a": {"b": [1, 2, 3]}}),
            None,
        ),
        // The atomic spec of an LLMInferenceService.
        (
            json!({"model": {"uri": "x"}}),
            json!({"annotations": {"asya.sh/roll": "1"}}),
            Some("spec.model"),
        ),
        (
            json!({"model": {"uri": "x"}}),
            json!({"model": {}}),
            Some("spec.model.uri"),
        ),
        (
            json!({"a": {"b.c/d": 1}}),
            json!({"a": {}}),
            Some("spec.a[b.c/d]"),
        ),
        (json!({"a": {"b": 1}}), json!({"a": 1}), Some("spec.a")),
        (json!({"a": [1, 2]}), json!({"a": [1]}), Some("spec.a[1]")),
        // An empty value is significant, null is not.
        (json!({"emptyDir": {}}), json!({}), Some("spec.emptyDir")),
        (json!({"a": null}), json!({}), None),
        // List items are matched by name, at any position.
        (
            json!({"containers": [container("x"), container("y")]}),
            json!({"containers": [container("y"), container("new"), container("x")]}),
            None,
        ),
        (
            json!({"containers": [container("x"), container("y")]}),
            json!({"containers": [container("y"), container("new")]}),
            Some("spec.containers[x]"),
        ),
        (
            json!({"tolerations": [{"key": "gpu", "effect": "NoSchedule"}]}),
            json!({"tolerations": [{"operator": "Exists"}, {"key": "gpu", "effect": "NoSchedule"}]}),
            None,
        ),
        (
            json!({"tolerations": [{"key": "gpu", "effect": "NoSchedule"}]}),
            json!({"tolerations": [{"operator": "Exists"}]}),
            Some("spec.tolerations[0]"),
        ),
    ] {
        let owned = json!({"f:metadata": {"f:annotations": {"f:asya.sh/x": {}}}});
        let removed = first_removed(&target(&owned, &previous), &target(&owned, &after), MANAGER);
        assert_eq!(removed.as_deref(), expected, "{previous} -> {after}");
    }
}

/// SAFE-41
#[test]
fn owned_fields_may_be_removed_but_none_around_them() {
    let item = json!({"f:spec": {"f:containers": {r#"k:{"name":"ours"}"#: {".": {}, "f:name": {}, "f:env": {r#"k:{"name":"A"}"#: {".": {}, "f:name": {}}}}}}});
    let set = json!({"f:spec": {"f:finalizers": {r#"v:"ours""#: {}}}});
    let volume = json!({"f:spec": {"f:volume": {"f:emptyDir": {}}}});
    let container = |name: &str| json!({"name": name, "env": [{"name": "A"}]});
    for (owned, previous, after, expected) in [
        (
            &item,
            json!({"containers": [container("x"), container("ours")]}),
            json!({"containers": [container("x")]}),
            None,
        ),
        (
            &item,
            json!({"containers": [container("x"), {"name": "ours", "imagePullPolicy": "Always"}]}),
            json!({"containers": [container("x")]}),
            None,
        ),
        (
            &item,
            json!({"containers": [container("x"), container("ours")]}),
            json!({"containers": [container("ours")]}),
            Some("spec.containers[x]"),
        ),
        (
            &set,
            json!({"finalizers": ["theirs", "ours"]}),
            json!({"finalizers": ["theirs"]}),
            None,
        ),
        (
            &set,
            json!({"finalizers": ["theirs", "ours"]}),
            json!({"finalizers": ["ours"]}),
            Some("spec.finalizers[0]"),
        ),
        (
            &volume,
            json!({"volume": {"emptyDir": {}}}),
            json!({}),
            None,
        ),
        (
            &volume,
            json!({"volume": {"emptyDir": {}, "name": "v"}}),
            json!({}),
            Some("spec.volume"),
        ),
    ] {
        let removed = first_removed(&target(owned, &previous), &target(owned, &after), MANAGER);
        assert_eq!(removed.as_deref(), expected, "{previous} -> {after}");
    }
}

/// SAFE-41
#[test]
fn only_applied_annotations_may_be_removed() {
    let annotations = |annotations: &Value| {
        let mut object = target(
            &json!({"f:metadata": {"f:annotations": {"f:asya.sh/x": {}}}}),
            &json!({}),
        );
        object["metadata"]["annotations"] = annotations.clone();
        object
    };
    let mut none = annotations(&json!(null));
    none["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    let both = annotations(&json!({"asya.sh/x": "1", "theirs": "2"}));
    let foreign = annotations(&json!({"theirs": "2"}));
    assert_eq!(first_removed(&both, &foreign, MANAGER), None);
    assert_eq!(
        first_removed(&both, &none, MANAGER).as_deref(),
        Some("metadata.annotations")
    );
    assert_eq!(
        first_removed(&annotations(&json!({"asya.sh/x": "1"})), &none, MANAGER),
        None
    );
    let removed = first_removed(&both, &foreign, "asya-operator/roll");
    assert_eq!(removed.as_deref(), Some("metadata.annotations[asya.sh/x]"));
}

/// SAFE-41
#[tokio::test]
async fn apply_that_would_remove_a_field_is_rejected_and_a_stale_read_is_a_conflict() {
    let previous = target(&json!({}), &json!({"model": "x"}));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v2", "Thing"));
    let body = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}});
    let apply = ForeignApply {
        namespace: "ns",
        resource: &resource,
        manager: MANAGER,
        body: &body,
    };
    for (version, code, text) in [
        ("1", 422, "would also remove spec.model"),
        ("2", 409, "was changed"),
    ] {
        let mut after = target(&json!({}), &json!({}));
        after["apiVersion"] = json!("example.org/v2");
        after["metadata"]["resourceVersion"] = json!(version);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let after = after.clone();
            async move {
                assert!(
                    request.uri().query().unwrap().contains("dryRun=All"),
                    "{}",
                    request.uri()
                );
                let sent = request.into_body().collect_bytes().await.unwrap();
                let sent: Value = serde_json::from_slice(&sent).unwrap();
                assert_eq!(sent["apiVersion"], "example.org/v2");
                let body = kube::client::Body::from(after.to_string().into_bytes());
                Ok::<_, tower::BoxError>(http::Response::new(body))
            }
        });
        let result = apply
            .dry_run(&Client::new(service, "default"), &previous)
            .await;
        let ApplyError::Api(kube::Error::Api(status)) = result.unwrap_err() else {
            panic!("not an API error")
        };
        assert_eq!(status.code, code);
        assert!(status.message.contains(text), "{}", status.message);
    }
}
