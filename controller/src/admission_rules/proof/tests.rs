use std::collections::BTreeSet;

use asya_shared::admission::required_entry_name;
use asya_shared::resolve::{Controller, PodMatch, Selector, resolver};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::bindings::Bound;
use super::{Proofs, judge, pod};

fn bound(kind: &str, name: &str, labels: &[(&str, &str)]) -> Bound {
    let convention = resolver("apps", kind).convention(name);
    let pods = PodMatch {
        labels: Selector::of_labels(labels.iter().copied()),
        ..convention
    };
    Bound::for_tests("models", "a", pods, Some("actorpart"))
}

/// CFG-8
#[test]
fn pod_of_the_proof_is_one_of_the_targets() {
    let long = "x".repeat(250);
    for (kind, name) in [
        ("Deployment", "web"),
        ("StatefulSet", "db"),
        ("Deployment", &*long),
    ] {
        let bound = bound(kind, name, &[("app", "web"), ("tier", "back")]);
        let pod = pod(&bound).unwrap();
        let owner = &pod["metadata"]["ownerReferences"][0];
        let text = |key: &str| owner[key].as_str().unwrap();
        let controller = Controller {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
        };
        assert!(controller.name.len() <= 253);
        let labels = &pod["metadata"]["labels"];
        assert!(
            bound
                .pods
                .matches(|key| labels[key].as_str(), Some(&controller)),
            "{pod}"
        );
        assert_eq!(pod["metadata"]["namespace"], "models");
        let _: Pod = serde_json::from_value(pod).unwrap();
    }
}

/// CFG-8
#[test]
fn only_a_pod_with_this_actors_part_is_a_proof() {
    let bound = bound("Deployment", "web", &[]);
    let answer = |annotations: Value| -> Pod {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    };
    let with = |by: &str, hash: &str| {
        answer(json!({"asya.sh/injected-by": by, "asya.sh/injected-hash": hash}))
    };
    assert_eq!(judge(&bound, &with("uid-of-a", "actorpart.any")), Ok(()));
    for other in [
        with("uid-of-a", "other.any"),
        with("another", "actorpart.any"),
        answer(json!({"asya.sh/injected-by": "uid-of-a"})),
        answer(json!({})),
    ] {
        judge(&bound, &other).unwrap_err();
    }
    let told = judge(
        &bound,
        &answer(json!({"asya.sh/not-injected": "HostNetwork"})),
    )
    .unwrap_err();
    assert!(told.contains("HostNetwork"), "{told}");
}

/// CFG-8
#[tokio::test]
async fn restart_keeps_what_was_proved_and_an_edit_proves_nothing() {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::ready(Err::<http::Response<kube::client::Body>, tower::BoxError>(
            "away".into(),
        ))
    });
    let bound = [bound("Deployment", "web", &[])];
    let entry = required_entry_name("models", "a");
    let failing = || [entry.clone().into()].into();
    let proofs = || Proofs::new(kube::Client::new(service, "default"));
    let mut restarted = proofs();
    restarted.keep(&bound, failing);
    assert!(restarted.has(&bound[0].uid, &entry));
    assert!(
        restarted.seek(&bound).await.again.is_none(),
        "nothing is to be proved"
    );
    restarted.keep(&[], failing);
    restarted.keep(&bound, failing);
    assert!(
        !restarted.has(&bound[0].uid, &entry),
        "it was not required meanwhile"
    );

    let mut edited = proofs();
    edited.keep(&bound, BTreeSet::default);
    edited.keep(&bound, failing);
    assert!(!edited.has(&bound[0].uid, &entry));
    assert!(
        edited.seek(&bound).await.again.is_some(),
        "it is tried again"
    );
    assert!(!edited.has(&bound[0].uid, &entry));
}

/// CFG-8
#[test]
fn proof_is_needed_until_the_entry_fails_closed() {
    let bound = bound("Deployment", "web", &[]);
    assert!(bound.needs_proof(&[].into()));
    let entry = required_entry_name("models", "a");
    assert!(
        !bound.needs_proof(&[entry.into()].into()),
        "a restart keeps Fail"
    );
}
