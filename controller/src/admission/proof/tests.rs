use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asya_shared::admission::required_entry_name;
use asya_shared::resolve::{Controller, PodMatch, Selector, resolver};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::bindings::Bound;
use super::{Proofs, pod};
use crate::record::Key;

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
fn proof_pod_matches_the_target() {
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

/// Proofs against an API server that answers every request with `answer`.
fn proofs(answer: &Arc<Mutex<Value>>) -> Proofs {
    let answer = Arc::clone(answer);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let text = answer.lock().unwrap().to_string();
        let answer = http::Response::new(kube::client::Body::from(text.into_bytes()));
        std::future::ready(Ok::<_, tower::BoxError>(answer))
    });
    Proofs::new(kube::Client::new(service, "default"))
}

/// Outcome of a round of dry runs.
struct Sought {
    proved: bool,
    again: Option<Duration>,
    failing: usize,
    told: Vec<(Key, String)>,
}

/// Runs all dry runs that are due.
async fn seek(proofs: &mut Proofs, all: &[Bound], trusted: &str) -> Sought {
    let count = |proofs: &Proofs| proofs.tried.values().filter(|it| it.proved).count();
    let mut told = Vec::new();
    proofs.start(all, trusted);
    let before = count(proofs);
    while !proofs.running.is_empty() {
        let done = proofs.next().await;
        told.extend(proofs.settle(done));
        proofs.start(all, trusted);
    }
    Sought {
        proved: count(proofs) > before,
        again: proofs.start(all, trusted),
        failing: proofs.failing(trusted),
        told,
    }
}

fn injected() -> Value {
    let annotations =
        json!({"asya.sh/injected-by": "uid-of-a", "asya.sh/injected-hash": "actorpart.any"});
    let containers = ["asya-runtime", "asya-sidecar"].map(|name| json!({"name": name}));
    json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": containers}})
}

fn bare() -> Value {
    json!({"metadata": {"name": "p"}})
}

/// CFG-8
#[tokio::test(start_paused = true)]
async fn restart_keeps_proofs_and_an_edit_is_no_proof() {
    let answer = Arc::new(Mutex::new(bare()));
    let bound = [bound("Deployment", "web", &[])];
    let entry = required_entry_name("models", "a");
    let failing = || [entry.clone().into()].into();
    let mut restarted = proofs(&answer);
    restarted.keep(&bound, failing);
    assert!(restarted.has(&bound[0].uid, &entry));
    // The dry run is repeated and fails, which changes nothing.
    let sought = seek(&mut restarted, &bound, "ca").await;
    assert!(sought.again.is_some() && !sought.proved);
    assert!(restarted.has(&bound[0].uid, &entry));
    restarted.keep(&[], failing);
    seek(&mut restarted, &[], "ca").await;
    restarted.keep(&bound, failing);
    assert!(
        !restarted.has(&bound[0].uid, &entry),
        "it was not required meanwhile"
    );

    let mut edited = proofs(&answer);
    edited.keep(&bound, BTreeSet::default);
    edited.keep(&bound, failing);
    assert!(!edited.has(&bound[0].uid, &entry));
    let sought = seek(&mut edited, &bound, "ca").await;
    assert!(sought.again.is_some(), "it is tried again");
    assert!(!edited.has(&bound[0].uid, &entry));
}

/// CFG-8
#[tokio::test(start_paused = true)]
async fn dry_run_that_panics_is_repeated() {
    let asked = Arc::new(AtomicUsize::new(0));
    let first = Arc::clone(&asked);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let asked = first.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(asked > 0, "a defect");
            let body = kube::client::Body::from(injected().to_string().into_bytes());
            Ok::<_, tower::BoxError>(http::Response::new(body))
        }
    });
    let mut proofs = Proofs::new(kube::Client::new(service, "default"));
    let bound = [bound("Deployment", "web", &[])];
    proofs.keep(&bound, BTreeSet::default);
    let sought = seek(&mut proofs, &bound, "ca").await;
    assert!(!sought.proved);
    tokio::time::sleep(sought.again.unwrap()).await;
    assert!(seek(&mut proofs, &bound, "ca").await.proved);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// CFG-8
#[tokio::test(start_paused = true)]
async fn new_ca_bundle_needs_a_new_proof_and_a_failure_is_only_reported() {
    let answer = Arc::new(Mutex::new(injected()));
    let bound = [bound("Deployment", "web", &[])];
    let entry = required_entry_name("models", "a");
    let mut proofs = proofs(&answer);
    proofs.keep(&bound, BTreeSet::default);
    let sought = seek(&mut proofs, &bound, "ca").await;
    assert!(sought.proved && sought.again.is_none());
    *answer.lock().unwrap() = bare();
    let sought = seek(&mut proofs, &bound, "ca").await;
    assert!(sought.again.is_none(), "it is not tried again");

    let (mut told, mut tries) = (Vec::new(), 0);
    let sought = loop {
        let mut sought = seek(&mut proofs, &bound, "another").await;
        assert!(!sought.proved && proofs.has(&bound[0].uid, &entry));
        told.append(&mut sought.told);
        tries += 1;
        let Some(again) = sought.again.filter(|_| tries < 8) else {
            break sought;
        };
        tokio::time::advance(again).await;
    };
    assert_eq!((sought.failing, told.len()), (1, 1), "told once: {told:?}");
    let (key, text) = &told[0];
    assert_eq!(*key, bound[0].key);
    assert!(text.contains("still fails closed"), "{text}");

    *answer.lock().unwrap() = injected();
    let again = sought.again.unwrap();
    tokio::time::advance(again).await;
    let sought = seek(&mut proofs, &bound, "another").await;
    assert_eq!((sought.failing, sought.again), (0, None));
    assert!(!sought.proved, "its entry says so already");
}

/// SAFE-9
#[tokio::test(start_paused = true)]
async fn unresponsive_webhook_blocks_nothing_and_gets_one_dry_run_at_a_time() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // The API server waits for the webhook, then admits the pod without the sidecar.
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let text = bare().to_string();
        async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let body = kube::client::Body::from(text.into_bytes());
            Ok::<_, tower::BoxError>(http::Response::new(body))
        }
    });
    let mut proofs = Proofs::new(kube::Client::new(service, "default"));
    let names: Vec<_> = (0..100).map(|n| format!("a{n}")).collect();
    let convention = resolver("apps", "Deployment").convention("web");
    let bound: Vec<_> = names
        .iter()
        .map(|name| Bound::for_tests("models", name, convention.clone(), Some("actorpart")))
        .collect();
    proofs.keep(&bound, BTreeSet::default);
    let begun = tokio::time::Instant::now();
    proofs.start(&bound, "ca");
    assert_eq!(begun.elapsed(), Duration::ZERO, "nobody waits");
    assert_eq!(proofs.running.len(), 4);
    for _ in 0..4 {
        let done = proofs.next().await;
        proofs.settle(done);
        proofs.start(&bound, "ca");
    }
    assert_eq!(proofs.running.len(), 1, "they all fail alike");
    let done = proofs.next().await;
    proofs.settle(done);
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    // An actor that needs no proof any more is forgotten, even while its dry run is in flight.
    assert_eq!(proofs.start(&[], "ca"), None);
    assert_eq!(proofs.failing("ca"), 0);
}
