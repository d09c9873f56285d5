//! Bodies that the API server, or anyone else who reaches the port, may send (ADM-2, ADM-8).

use asya_fuzz::input::{damaged, json};
use asya_fuzz::proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof};
use asya_fuzz::proptest::sample::select;
use asya_fuzz::{check, fail};
use serde_json::{Value, json};

use super::super::{AdmissionRequest, AdmissionResponse};
use crate::testing::{actor, actor_review, binding, pod, pod_review};

fn reviews() -> Vec<Value> {
    let actor = actor("models", "mild", &binding("Deployment", "mild"));
    let texts = [
        pod_review("models", &pod("mild"), true),
        actor_review("models", &actor, false),
    ];
    texts
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
}

/// Reviews with a few bytes changed, or with an arbitrary value in place of the expected one.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let at = [
        "",
        "/apiVersion",
        "/kind",
        "/request",
        "/request/uid",
        "/request/kind",
        "/request/resource",
        "/request/namespace",
        "/request/operation",
        "/request/object",
        "/request/dryRun",
    ];
    let changed =
        (select(reviews()), select(at.to_vec()), json()).prop_map(|(mut all, at, odd)| {
            if let Some(it) = all.pointer_mut(at) {
                *it = odd;
            }
            all.to_string().into_bytes()
        });
    let valid = reviews()
        .iter()
        .map(|value| value.to_string().into_bytes())
        .collect();
    prop_oneof![damaged(valid), changed]
}

/// ADM-2, ADM-8
#[test]
fn any_body_is_refused_without_quoting_it_or_answered_with_its_uid() {
    check(&bodies(), |body| {
        let request = match AdmissionRequest::read(&body) {
            Ok(request) => request,
            Err(unreadable) => {
                let told = unreadable.to_string();
                prop_assert!(
                    told.starts_with("expected an AdmissionReview") && told.len() < 200,
                    "{told}"
                );
                return Ok(());
            }
        };
        prop_assert!(!request.uid.is_empty() && request.subject().len() <= body.len() + 3);
        let response = AdmissionResponse {
            patch: Some(b"[]".to_vec()),
            ..AdmissionResponse::denied(422, request.subject())
        };
        let answer = response.write(&request.uid).map_err(fail)?;
        let answer: Value = serde_json::from_slice(&answer).map_err(fail)?;
        prop_assert_eq!(&answer["response"]["uid"], &json!(request.uid));
        prop_assert_eq!(
            &answer["response"]["status"]["message"],
            &json!(request.subject())
        );
        Ok(())
    });
}
