#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use asya_process::metrics::Exposed;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

use super::*;
use crate::record::ConfigMapRecord;
use crate::telemetry::health::Readiness;

/// A server that refuses and counts all requests.
fn refusing(asked: &Arc<AtomicUsize>) -> Client {
    let asked = Arc::clone(asked);
    let server = tower::service_fn(move |_: Request<Body>| {
        asked.fetch_add(1, Ordering::Relaxed);
        let text = r#"{"status": "Failure", "code": 403, "message": "no", "reason": "Forbidden"}"#;
        let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Client::new(server, "default")
}

/// A server with one object, which refuses the first watches.
fn server(refusals: usize, watches: &Arc<AtomicUsize>) -> Client {
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
            if watching && number >= refusals {
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
        scope: None,
        selector: Selector::default(),
        served: None,
        store: Arc::new(Store::<ConfigMapRecord>::default()),
        gate: readiness.gate("watch ConfigMap"),
        metrics: Arc::new(Metrics::new()),
    }
}

/// KEDA-9, OPS-6
#[tokio::test(start_paused = true)]
async fn unserved_kind_does_not_block_readiness_and_is_watched_while_served() {
    let (watches, readiness) = (Arc::new(AtomicUsize::new(0)), Readiness::default());
    let (serve, served) = watch::channel(false);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let store = Arc::new(Store::<ConfigMapRecord>::default());
    let watch = Watch {
        served: Some(served),
        store: store.clone(),
        ..watch(server(0, &watches), &readiness)
    };
    tokio::spawn(watch.run(move |concerns| tell.send(concerns).unwrap()));
    let mut heard = async || {
        let next = timeout(Duration::from_mins(1), told.recv()).await;
        next.expect("nothing is told").expect("it goes on")
    };
    readiness.reached().await;
    assert_eq!((watches.load(Ordering::Relaxed), store.len()), (0, 0));

    for _ in 0..2 {
        serve.send_replace(true);
        assert!(!store.is_listed("ns"), "nothing can be concluded yet");
        heard().await;
        assert_eq!(store.len(), 1, "the object is there");
        let complete = heard().await;
        assert!(
            matches!(complete, Enqueue::Everybody),
            "who waited for the list hears of it: {complete:?}"
        );
        assert!(store.is_listed("ns"));
        serve.send_replace(false);
        heard().await;
        assert_eq!(store.len(), 0, "it went with its kind");
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
    assert!(healthy(0), "a failure was not told");
    tokio::time::sleep(QUIET).await;
    assert!(healthy(1), "a quiet watch counts as failing");
    assert_eq!(
        watches.load(Ordering::Relaxed),
        4,
        "the watch was begun anew"
    );
    running.abort();
}

/// FW-12
#[tokio::test(start_paused = true)]
async fn refused_list_backs_off_and_never_counts_as_healthy() {
    let (asked, readiness) = (Arc::new(AtomicUsize::new(0)), Readiness::default());
    let watch = watch(refusing(&asked), &readiness);
    let metrics = Arc::clone(&watch.metrics);
    let running = tokio::spawn(watch.run(|_| {}));
    let unhealthy = r#"asya_operator_watch_healthy{kind="ConfigMap"} 0"#;
    let end = tokio::time::Instant::now() + Duration::from_mins(5);
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let text = metrics.text().unwrap();
        assert!(
            asked.load(Ordering::Relaxed) == 0 || text.contains(unhealthy),
            "{text}"
        );
    }
    // Six until the backoff reaches its maximum, then one every 15 to 30 s.
    let asked = asked.load(Ordering::Relaxed);
    assert!((14..=27).contains(&asked), "{asked} lists in five minutes");
    assert!(!running.is_finished());
    running.abort();
}

/// FW-12
#[test]
fn missing_rbac_rule_of_a_refused_watch_is_named() {
    let refused = |code| kube::core::Status::failure("no", "Forbidden").with_code(code);
    let rule = r#"{apiGroups: [""], resources: ["configmaps"], verbs: [get, list, watch]}"#;
    for (error, wanted) in [
        (
            Error::InitialListFailed(kube::Error::Api(refused(403).boxed())),
            Some(rule),
        ),
        (
            Error::WatchStartFailed(kube::Error::Api(refused(403).boxed())),
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
        assert_eq!(named.as_deref(), wanted, "{error}");
    }
}
