#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use asya_process::metrics::ExposedMetrics;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::*;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{ActorRecord, ConfigMapRecord, ForeignRecord, PodRecord, UninjectedPodRecord};
use crate::telemetry::health::Readiness;

/// A server that rejects and counts all lists of `ConfigMap`s, which come in pages of 25 (OPS-31).
fn rejecting(requests: &Arc<AtomicUsize>) -> Client {
    let requests = Arc::clone(requests);
    let server = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        assert!(query.split('&').any(|it| it == "limit=25"), "{query}");
        requests.fetch_add(1, Ordering::Relaxed);
        let text = r#"{"status": "Failure", "code": 403, "message": "no", "reason": "Forbidden"}"#;
        let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Client::new(server, "default")
}

/// A server with one object, which rejects the first watches.
fn server(rejections: usize, watches: &Arc<AtomicUsize>) -> Client {
    let watches = Arc::clone(watches);
    let server = tower::service_fn(move |request: Request<Body>| {
        let watching = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let number = if watching {
            watches.fetch_add(1, Ordering::Relaxed)
        } else {
            0
        };
        async move {
            if watching && number >= rejections {
                pending::<()>().await;
            }
            let (status, text) = if watching {
                (
                    StatusCode::TOO_MANY_REQUESTS,
                    r#"{"status": "Failure", "code": 429, "message": "starting", "reason": "TooManyRequests"}"#,
                )
            } else {
                (
                    StatusCode::OK,
                    r#"{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "5"}}]}"#,
                )
            };
            let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
            *response.status_mut() = status;
            Ok::<_, BoxError>(response)
        }
    });
    Client::new(server, "default")
}

fn watch(server: Client, readiness: &Readiness) -> Watch<ConfigMapRecord> {
    Watch {
        api: Api::all(server),
        scope: WatchScope::Cluster,
        selector: Selector::default(),
        served: None,
        sink: Arc::new(Store::<ConfigMapRecord>::default()),
        check: readiness.check("watch ConfigMap"),
        metrics: Arc::new(Metrics::new()),
    }
}

/// KEDA-9, OPS-6
#[tokio::test(start_paused = true)]
async fn unserved_kind_does_not_block_readiness_and_is_watched_while_served() {
    let (watches, readiness) = (Arc::new(AtomicUsize::new(0)), Readiness::default());
    let (serve, served) = watch::channel(false);
    let (sender, mut enqueued) = tokio::sync::mpsc::unbounded_channel();
    let store = Arc::new(Store::<ConfigMapRecord>::default());
    let watch = Watch {
        served: Some(served),
        sink: store.clone(),
        ..watch(server(0, &watches), &readiness)
    };
    tokio::spawn(watch.run(move |affected| sender.send(affected).unwrap()));
    let mut next_enqueued = async || {
        let next = timeout(Duration::from_mins(1), enqueued.recv()).await;
        next.expect("something is enqueued")
            .expect("the watch is running")
    };
    readiness.all_ready().await;
    assert_eq!((watches.load(Ordering::Relaxed), store.len()), (0, 0));

    for _ in 0..2 {
        serve.send_replace(true);
        assert!(!store.is_synced("ns"), "the list is not complete yet");
        next_enqueued().await;
        assert_eq!(store.len(), 1, "the object is stored");
        let complete = next_enqueued().await;
        assert!(
            matches!(complete, Enqueue::AllActors),
            "actors that waited for the list are enqueued: {complete:?}"
        );
        assert!(store.is_synced("ns"));
        serve.send_replace(false);
        next_enqueued().await;
        assert_eq!(store.len(), 0, "the object is dropped with its kind");
        assert_eq!(readiness.pending(), Vec::<String>::new());
    }
}

/// OPS-6, FW-12
#[tokio::test(start_paused = true)]
async fn watch_failing_after_its_list_stays_ready_and_recovers_when_quiet() {
    let (watches, readiness) = (Arc::new(AtomicUsize::new(0)), Readiness::default());
    let metrics = Arc::new(Metrics::new());
    let watch = Watch {
        metrics: Arc::clone(&metrics),
        ..watch(server(3, &watches), &readiness)
    };
    let running = tokio::spawn(watch.run(|_| {}));
    let healthy = |value| {
        let line = format!(r#"asya_operator_watch_healthy{{kind="ConfigMap"}} {value}"#);
        metrics.text().unwrap().contains(&line)
    };
    while watches.load(Ordering::Relaxed) < 4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!running.is_finished());
    }
    assert_eq!(readiness.pending(), Vec::<String>::new());
    assert!(healthy(0), "a failure is not reported");
    tokio::time::sleep(QUIET).await;
    assert!(healthy(1), "a quiet watch is reported as failing");
    assert_eq!(
        watches.load(Ordering::Relaxed),
        4,
        "the watch was not restarted"
    );
    running.abort();
}

/// FW-12
#[tokio::test(start_paused = true)]
async fn rejected_list_backs_off_and_never_counts_as_healthy() {
    let (requests, readiness) = (Arc::new(AtomicUsize::new(0)), Readiness::default());
    let watch = watch(rejecting(&requests), &readiness);
    let metrics = Arc::clone(&watch.metrics);
    let running = tokio::spawn(watch.run(|_| {}));
    let unhealthy = r#"asya_operator_watch_healthy{kind="ConfigMap"} 0"#;
    let end = tokio::time::Instant::now() + Duration::from_mins(5);
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let text = metrics.text().unwrap();
        assert!(
            requests.load(Ordering::Relaxed) == 0 || text.contains(unhealthy),
            "{text}"
        );
    }
    // Six until the backoff reaches its maximum, then one every 15 to 30 s.
    let requests = requests.load(Ordering::Relaxed);
    assert!(
        (14..=27).contains(&requests),
        "{requests} lists in five minutes"
    );
    assert!(!running.is_finished());
    running.abort();
}

/// FW-12
#[test]
fn missing_rbac_rule_of_a_forbidden_watch_is_named() {
    let forbidden = |code| kube::core::Status::failure("no", "Forbidden").with_code(code);
    let rule = r#"{apiGroups: [""], resources: ["configmaps"], verbs: [get, list, watch]}"#;
    for (error, expected) in [
        (
            Error::InitialListFailed(kube::Error::Api(forbidden(403).boxed())),
            Some(rule),
        ),
        (
            Error::WatchStartFailed(kube::Error::Api(forbidden(403).boxed())),
            Some(rule),
        ),
        (
            Error::InitialListFailed(kube::Error::Api(
                kube::core::Status::failure("later", "Timeout")
                    .with_code(504)
                    .boxed(),
            )),
            None,
        ),
    ] {
        let named = missing_rule::<ConfigMapRecord>(&error);
        assert_eq!(named.as_deref(), expected, "{error}");
    }
}

/// OPS-31, VAL-22
#[test]
fn pages_of_whole_objects_are_small() {
    let small = [
        page_size::<ActorRecord>(),
        page_size::<PodRecord>(),
        page_size::<ConfigMapRecord>(),
    ];
    assert_eq!(small, [25; 3], "37.5 MB of the largest objects");
    let of_metadata = [
        page_size::<UninjectedPodRecord>(),
        page_size::<ForeignRecord>(),
    ];
    assert_eq!(of_metadata, [100; 2]);
}
