use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use asya_shared::admission::required_entry_name;
use asya_shared::resolve::{Controller, PodMatch, Selector, resolver};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::bindings::WebhookBinding;
use super::{InjectionProbes, pod};
use crate::record::Key;

fn binding(kind: &str, name: &str, labels: &[(&str, &str)]) -> WebhookBinding {
    let unresolved = resolver("apps", kind).unresolved_pods(name);
    let pods = PodMatch {
        labels: Selector::of_labels(labels.iter().copied()),
        ..unresolved
    };
    WebhookBinding::for_tests("models", "a", pods, Some("actorhash"))
}

/// CFG-8
#[test]
fn probe_pod_matches_the_target() {
    let long = "x".repeat(250);
    for (kind, name) in [
        ("Deployment", "web"),
        ("StatefulSet", "db"),
        ("Deployment", &*long),
    ] {
        let binding = binding(kind, name, &[("app", "web"), ("tier", "back")]);
        let pod = pod(&binding).unwrap();
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
            binding
                .pods
                .matches(|key| labels[key].as_str(), Some(&controller)),
            "{pod}"
        );
        assert_eq!(pod["metadata"]["namespace"], "models");
        let _: Pod = serde_json::from_value(pod).unwrap();
    }
}

/// Injection probes against an API server that returns `response` to every request.
fn probes(response: &Arc<Mutex<Value>>) -> InjectionProbes {
    let response = Arc::clone(response);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let text = response.lock().unwrap().to_string();
        let response = http::Response::new(kube::client::Body::from(text.into_bytes()));
        std::future::ready(Ok::<_, tower::BoxError>(response))
    });
    InjectionProbes::new(kube::Client::new(service, "default"))
}

/// Outcome of a round of dry runs.
struct Round {
    verified: bool,
    retry_after: Option<Duration>,
    failing: usize,
    events: Vec<(Key, String)>,
}

/// Runs all dry runs that are due.
async fn run_due(
    probes: &mut InjectionProbes,
    bindings: &[WebhookBinding],
    trusted: &str,
) -> Round {
    let count = |probes: &InjectionProbes| {
        let all = probes.by_uid.values();
        all.filter(|progress| progress.verified).count()
    };
    let mut events = Vec::new();
    probes.start(bindings, trusted);
    let previous = count(probes);
    while !probes.running.is_empty() {
        let finished = probes.next().await;
        events.extend(probes.record(finished));
        probes.start(bindings, trusted);
    }
    Round {
        verified: count(probes) > previous,
        retry_after: probes.start(bindings, trusted),
        failing: probes.failing_count(trusted),
        events,
    }
}

fn injected() -> Value {
    let annotations =
        json!({"asya.sh/injected-by": "uid-of-a", "asya.sh/injected-hash": "actorhash.any"});
    let containers = ["asya-runtime", "asya-sidecar"].map(|name| json!({"name": name}));
    json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": containers}})
}

fn uninjected() -> Value {
    json!({"metadata": {"name": "p"}})
}

/// CFG-8
#[tokio::test(start_paused = true)]
async fn verification_survives_a_restart_but_edited_entries_verify_nothing() {
    let response = Arc::new(Mutex::new(uninjected()));
    let bindings = [binding("Deployment", "web", &[])];
    let entry = required_entry_name("models", "a");
    let failing = || [entry.clone().into()].into();
    let mut restarted = probes(&response);
    restarted.retain_required(&bindings, |_| false, failing);
    assert!(restarted.is_verified(&bindings[0].uid, &entry));
    // The dry run is repeated and fails, which changes nothing.
    let round = run_due(&mut restarted, &bindings, "ca").await;
    assert!(round.retry_after.is_some() && !round.verified);
    assert!(restarted.is_verified(&bindings[0].uid, &entry));
    restarted.retain_required(&[], |_| false, failing);
    run_due(&mut restarted, &[], "ca").await;
    restarted.retain_required(&bindings, |_| false, failing);
    assert!(
        !restarted.is_verified(&bindings[0].uid, &entry),
        "it was not required in between"
    );

    let mut edited = probes(&response);
    edited.retain_required(&bindings, |_| false, BTreeSet::default);
    edited.retain_required(&bindings, |_| false, failing);
    assert!(!edited.is_verified(&bindings[0].uid, &entry));
    let round = run_due(&mut edited, &bindings, "ca").await;
    assert!(round.retry_after.is_some(), "it is retried");
    assert!(!edited.is_verified(&bindings[0].uid, &entry));
}

/// CFG-8
#[tokio::test(start_paused = true)]
async fn dry_run_that_panics_is_repeated() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let earlier = count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(earlier > 0, "a defect");
            let body = kube::client::Body::from(injected().to_string().into_bytes());
            Ok::<_, tower::BoxError>(http::Response::new(body))
        }
    });
    let mut probes = InjectionProbes::new(kube::Client::new(service, "default"));
    let bindings = [binding("Deployment", "web", &[])];
    probes.retain_required(&bindings, |_| false, BTreeSet::default);
    let round = run_due(&mut probes, &bindings, "ca").await;
    assert!(!round.verified);
    tokio::time::sleep(round.retry_after.unwrap()).await;
    assert!(run_due(&mut probes, &bindings, "ca").await.verified);
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

/// CFG-8
#[tokio::test(start_paused = true)]
async fn new_ca_bundle_needs_another_dry_run_and_a_failure_is_only_reported() {
    let response = Arc::new(Mutex::new(injected()));
    let bindings = [binding("Deployment", "web", &[])];
    let entry = required_entry_name("models", "a");
    let mut probes = probes(&response);
    probes.retain_required(&bindings, |_| false, BTreeSet::default);
    let round = run_due(&mut probes, &bindings, "ca").await;
    assert!(round.verified && round.retry_after.is_none());
    *response.lock().unwrap() = uninjected();
    let round = run_due(&mut probes, &bindings, "ca").await;
    assert!(round.retry_after.is_none(), "it is not retried");

    let mut events = Vec::new();
    let mut attempts = 0;
    let round = loop {
        let mut round = run_due(&mut probes, &bindings, "another").await;
        assert!(!round.verified && probes.is_verified(&bindings[0].uid, &entry));
        events.append(&mut round.events);
        attempts += 1;
        let Some(retry_after) = round.retry_after.filter(|_| attempts < 8) else {
            break round;
        };
        tokio::time::advance(retry_after).await;
    };
    assert_eq!(
        (round.failing, events.len()),
        (1, 1),
        "one Event: {events:?}"
    );
    let (key, text) = &events[0];
    assert_eq!(*key, bindings[0].key);
    assert!(text.contains("still fails closed"), "{text}");

    *response.lock().unwrap() = injected();
    tokio::time::advance(round.retry_after.unwrap()).await;
    let round = run_due(&mut probes, &bindings, "another").await;
    assert_eq!((round.failing, round.retry_after), (0, None));
    assert!(!round.verified, "it was verified before");
}

/// SAFE-9
#[tokio::test(start_paused = true)]
async fn unresponsive_webhook_blocks_nothing_and_gets_one_dry_run_at_a_time() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    // The API server waits for the webhook, then admits the pod without the sidecar.
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let text = uninjected().to_string();
        async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let body = kube::client::Body::from(text.into_bytes());
            Ok::<_, tower::BoxError>(http::Response::new(body))
        }
    });
    let mut probes = InjectionProbes::new(kube::Client::new(service, "default"));
    let names: Vec<_> = (0..100).map(|n| format!("a{n}")).collect();
    let unresolved = resolver("apps", "Deployment").unresolved_pods("web");
    let bindings: Vec<_> = names
        .iter()
        .map(|name| {
            WebhookBinding::for_tests("models", name, unresolved.clone(), Some("actorhash"))
        })
        .collect();
    probes.retain_required(&bindings, |_| false, BTreeSet::default);
    let started = tokio::time::Instant::now();
    probes.start(&bindings, "ca");
    assert_eq!(started.elapsed(), Duration::ZERO, "starting does not wait");
    assert_eq!(probes.running.len(), 4);
    for _ in 0..4 {
        let finished = probes.next().await;
        probes.record(finished);
        probes.start(&bindings, "ca");
    }
    assert_eq!(
        probes.running.len(),
        1,
        "after slow failures, one runs at a time"
    );
    let finished = probes.next().await;
    probes.record(finished);
    assert_eq!(requests.load(Ordering::SeqCst), 5);
    // An actor that no longer needs a dry run is forgotten, even while one is in flight.
    assert_eq!(probes.start(&[], "ca"), None);
    assert_eq!(probes.failing_count("ca"), 0);
}
