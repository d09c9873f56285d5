use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::client::Body;
use kube::core::{GroupVersionKind, Status};
use parking_lot::Mutex;
use tokio::time::timeout;
use tower::BoxError;

use super::*;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(1));
const LIST: &str = r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#;
const UNDECODABLE: &str = r#"{"type": "MODIFIED", "object": {"metadata": 5}}"#;
const THROTTLED: &str = r#"{"status": "Failure", "code": 429, "reason": "TooManyRequests"}"#;

/// An API whose server counts lists, answers the nth watch after a delay, and never answers later ones.
fn api(
    lists: &Arc<AtomicUsize>,
    watches: &'static [(u64, StatusCode, &'static str)],
) -> Api<DynamicObject> {
    let (lists, number) = (Arc::clone(lists), Arc::new(AtomicUsize::new(0)));
    let server = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let watch = query.contains("watch=true").then(|| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            watches.get(number).copied()
        });
        if watch.is_none() {
            lists.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            let (status, text) = match watch {
                None => (StatusCode::OK, LIST),
                Some(None) => pending().await,
                Some(Some((delay, status, text))) => {
                    sleep(Duration::from_secs(delay)).await;
                    (status, text)
                }
            };
            let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
            *response.status_mut() = status;
            Ok::<_, BoxError>(response)
        }
    });
    let kind = GroupVersionKind::gvk("", "v1", "ConfigMap");
    Api::all_with(
        Client::new(server, "default"),
        &ApiResource::from_gvk(&kind),
    )
}

/// Follows for ten minutes; returns the number of consecutive failures at each error.
async fn failures(api: Api<DynamicObject>) -> Vec<u32> {
    let failures = Mutex::new(Vec::new());
    let failed = |_: &Error, count| failures.lock().push(count);
    let follow = follow(api, Config::default(), BACKOFF, |_| (), failed);
    let ended = timeout(Duration::from_mins(10), follow).await;
    assert!(ended.is_err(), "it follows forever");
    failures.into_inner()
}

#[tokio::test(start_paused = true)]
async fn event_that_cannot_be_decoded_leads_to_another_list() {
    for watch in [
        &[(0, StatusCode::OK, UNDECODABLE)],
        &[(0, StatusCode::OK, "not JSON")],
    ] {
        let lists = Arc::new(AtomicUsize::new(0));
        failures(api(&lists, watch)).await;
        assert_eq!(lists.load(Ordering::Relaxed), 2, "{watch:?}");
    }
    let lists = Arc::new(AtomicUsize::new(0));
    failures(api(&lists, &[(0, StatusCode::OK, "")])).await;
    assert_eq!(lists.load(Ordering::Relaxed), 1, "a watch that only ended");
}

#[tokio::test(start_paused = true)]
async fn failures_after_a_watch_that_worked_are_counted_anew() {
    const STATUS: StatusCode = StatusCode::TOO_MANY_REQUESTS;
    let lists = Arc::new(AtomicUsize::new(0));
    let watches = &[
        (0, STATUS, THROTTLED),
        (0, STATUS, THROTTLED),
        (60, STATUS, THROTTLED),
        (0, STATUS, THROTTLED),
    ];
    assert_eq!(failures(api(&lists, watches)).await, [1, 2, 1, 2]);
}

/// AVL-7
#[tokio::test(start_paused = true)]
async fn those_who_failed_together_do_not_retry_together() {
    const WATCHES: &[(u64, StatusCode, &str)] = &[(0, StatusCode::TOO_MANY_REQUESTS, THROTTLED); 2];
    let mut waits = Vec::new();
    for _ in 0..20 {
        let errors = Mutex::new(Vec::new());
        let failed = |_: &Error, _| errors.lock().push(Instant::now());
        let api = api(&Arc::default(), WATCHES);
        let follow = follow(api, Config::default(), BACKOFF, |_| (), failed);
        let ended = timeout(Duration::from_mins(1), follow).await;
        assert!(ended.is_err(), "it follows forever");
        let [first, second] = errors.into_inner()[..] else {
            panic!("each watch fails once");
        };
        waits.push(second - first);
    }
    let full = BACKOFF.after(0);
    // A timer fires up to 1 ms late.
    let expected = full / 2..=full + Duration::from_millis(1);
    assert!(
        waits.iter().all(|wait| expected.contains(wait)),
        "{waits:?}"
    );
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

/// `Init` comes before the list is requested, and after an `InitApply` the next page may still fail.
#[test]
fn watch_is_established_once_it_was_listed() {
    for (event, established) in [
        (Event::Init, false),
        (Event::InitApply(()), false),
        (Event::InitDone, true),
        (Event::Apply(()), true),
        (Event::Delete(()), true),
    ] {
        assert_eq!(is_established(&event), established, "{event:?}");
    }
}

#[test]
fn only_a_watch_that_had_begun_counts_as_interrupted() {
    let status = Status::failure("too many requests", "TooManyRequests");
    let refused = || kube::Error::Api(Box::new(status.clone()));
    for (error, interrupted) in [
        (Error::WatchFailed(refused()), true),
        (Error::WatchError(Box::new(status.clone())), true),
        (Error::InitialListFailed(refused()), false),
        (Error::WatchStartFailed(refused()), false),
        (Error::NoResourceVersion, false),
    ] {
        assert_eq!(is_interruption(&error), interrupted, "{error:?}");
    }
}
