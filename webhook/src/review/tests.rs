use serde_json::{Value, json};

use super::{Answer, Request, Served, Unreadable};

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

fn written(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.write("u\"1").unwrap()).unwrap()
}

/// ADM-2
#[test]
fn answers_echo_version_kind_and_uid() {
    let body = review(&pod_review());
    let request = Request::read(&body).unwrap();
    assert_eq!(request.uid, "u\"1");
    assert_eq!(request.namespace, "models");
    assert!(request.is(&PODS) && !request.is_dry_run());
    assert_eq!(
        written(&Answer::allowed()),
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "u\"1", "allowed": true},
        })
    );
}

/// ADM-2
#[test]
fn patches_are_json_patch_as_base64_text() {
    let answer = Answer {
        patch: Some(br#"[{"op":"add"}]"#.to_vec()),
        ..Answer::warned("w")
    };
    assert_eq!(
        written(&answer)["response"],
        json!({
            "uid": "u\"1", "allowed": true, "warnings": ["w"],
            "patchType": "JSONPatch", "patch": "W3sib3AiOiJhZGQifV0=",
        })
    );
}

/// ADM-3
#[test]
fn denials_carry_code_and_text() {
    let status = |code| written(&Answer::denied(code, "no"))["response"]["status"].clone();
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
    let text = Request::read(&secret).unwrap_err().to_string();
    assert!(text.contains("line 1, column"), "{text}");
    assert!(
        !text.contains("hunter2") && !text.contains("password"),
        "{text}"
    );
}

/// ADM-3
#[test]
fn review_without_a_request_to_answer_is_rejected() {
    let other = |api_version: &str, kind: &str| {
        let review = json!({"apiVersion": api_version, "kind": kind, "request": pod_review()});
        Request::read(review.to_string().as_bytes()).unwrap_err()
    };
    assert_eq!(
        other("admission.k8s.io/v1beta1", "AdmissionReview"),
        Unreadable::Other
    );
    assert_eq!(other("admission.k8s.io/v1", "Status"), Unreadable::Other);
    assert_eq!(
        Request::read(&review(&Value::Null)).unwrap_err(),
        Unreadable::NoRequest
    );
    assert_eq!(
        Request::read(&review(&json!({}))).unwrap_err(),
        Unreadable::NoUid
    );
}

/// ADM-3
#[test]
fn a_path_serves_one_resource_and_some_operations() {
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
        assert!(!Request::read(&body).unwrap().is(&PODS), "{path}");
    }
    let mut request = pod_review();
    request["subResource"] = json!("eviction");
    let body = review(&request);
    let request = Request::read(&body).unwrap();
    assert!(!request.is(&PODS));
    assert_eq!(request.subject(), "CREATE pods/eviction");
}
