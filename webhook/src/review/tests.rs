mod fuzz;

use serde_json::{Value, json};

use super::{AdmissionRequest, AdmissionResponse, Served, Unreadable};

const PODS: Served = Served {
    group: "",
    version: "v1",
    kind: "Pod",
    resource: "pods",
    operations: &["CREATE"],
};

fn review(request: &Value) -> Vec<u8> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request,
    });
    review.to_string().into_bytes()
}

fn pod_review() -> Value {
    json!({
        "uid": "u\"1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "models",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": {"metadata": {"generateName": "m-"}, "spec": {}},
        "oldObject": null,
        "dryRun": null,
    })
}

fn written(response: &AdmissionResponse) -> Value {
    serde_json::from_slice(&response.write("u\"1").unwrap()).unwrap()
}

/// ADM-2
#[test]
fn responses_echo_version_kind_and_uid() {
    let body = review(&pod_review());
    let request = AdmissionRequest::read(&body).unwrap();
    assert_eq!(request.uid, "u\"1");
    assert_eq!(request.namespace, "models");
    assert!(request.is_for(&PODS) && !request.is_dry_run());
    assert_eq!(
        written(&AdmissionResponse::allowed()),
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "u\"1", "allowed": true},
        })
    );
}

/// ADM-2
#[test]
fn patches_are_base64_encoded_json_patches() {
    let response = AdmissionResponse {
        patch: Some(br#"[{"op":"add"}]"#.to_vec()),
        ..AdmissionResponse::warned("w")
    };
    assert_eq!(
        written(&response)["response"],
        json!({
            "uid": "u\"1", "allowed": true, "warnings": ["w"],
            "patchType": "JSONPatch", "patch": "W3sib3AiOiJhZGQifV0=",
        })
    );
}

/// ADM-3
#[test]
fn denials_have_a_code_and_a_message() {
    let status =
        |code| written(&AdmissionResponse::denied(code, "no"))["response"]["status"].clone();
    assert_eq!(
        status(422),
        json!({"code": 422, "reason": "Invalid", "message": "no"})
    );
    assert_eq!(status(403)["reason"], "Forbidden");
    assert_eq!(status(500)["reason"], "InternalError");
}

/// ADM-8
#[test]
fn errors_do_not_quote_the_body() {
    let secret = review(&json!({"uid": {"password": "hunter2"}}));
    let text = AdmissionRequest::read(&secret).unwrap_err().to_string();
    assert!(text.contains("line 1, column"), "{text}");
    assert!(
        !text.contains("hunter2") && !text.contains("password"),
        "{text}"
    );
}

/// ADM-3
#[test]
fn invalid_review_is_rejected() {
    let other = |api_version: &str, kind: &str| {
        let review = json!({"apiVersion": api_version, "kind": kind, "request": pod_review()});
        AdmissionRequest::read(review.to_string().as_bytes()).unwrap_err()
    };
    assert_eq!(
        other("admission.k8s.io/v1beta1", "AdmissionReview"),
        Unreadable::Other
    );
    assert_eq!(other("admission.k8s.io/v1", "Status"), Unreadable::Other);
    assert_eq!(
        AdmissionRequest::read(&review(&Value::Null)).unwrap_err(),
        Unreadable::NoRequest
    );
    assert_eq!(
        AdmissionRequest::read(&review(&json!({}))).unwrap_err(),
        Unreadable::NoUid
    );
}

/// ADM-3
#[test]
fn path_serves_one_resource_and_some_operations() {
    for (path, value) in [
        ("/operation", json!("UPDATE")),
        ("/kind/kind", json!("Eviction")),
        ("/kind/version", json!("v2")),
        ("/resource/resource", json!("deployments")),
        ("/resource/group", json!("apps")),
    ] {
        let mut request = pod_review();
        *request.pointer_mut(path).unwrap() = value;
        let body = review(&request);
        assert!(
            !AdmissionRequest::read(&body).unwrap().is_for(&PODS),
            "{path}"
        );
    }
    let mut request = pod_review();
    request["subResource"] = json!("eviction");
    let body = review(&request);
    let request = AdmissionRequest::read(&body).unwrap();
    assert!(!request.is_for(&PODS));
    assert_eq!(request.subject(), "CREATE pods/eviction");
}
