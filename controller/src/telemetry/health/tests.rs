#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use tokio::time::timeout;
use tower::ServiceExt;

use super::*;

/// Routes of the probes that report `readiness`.
fn routes(readiness: &Readiness) -> Router {
    let readiness = readiness.clone();
    asya_process::probes::routes(move || readiness.pending())
}

async fn get(readiness: &Readiness, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = routes(readiness).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.into()).unwrap())
}

/// OPS-6
#[tokio::test]
async fn readyz_lists_the_pending_checks() {
    let readiness = Readiness::default();
    let actors = readiness.check("watch AsyncActor");
    let pods = readiness.check("watch Pod");
    let both = "watch AsyncActor: has not been ready yet\nwatch Pod: has not been ready yet";
    assert_eq!(get(&readiness, "/readyz").await, (503, both.to_owned()));
    actors.ready();
    pods.not_ready("forbidden");
    assert_eq!(
        get(&readiness, "/readyz").await,
        (503, "watch Pod: forbidden".to_owned())
    );
    pods.ready();
    assert_eq!(get(&readiness, "/readyz").await, (200, "ok".to_owned()));
    pods.not_ready("shutting down");
    assert_eq!(get(&readiness, "/readyz").await.0, 503);
    drop(pods);
    assert_eq!(
        get(&readiness, "/readyz").await.0,
        200,
        "a dropped check is not required"
    );
}

/// FW-12
#[tokio::test]
async fn refused_check_is_pending_only_while_no_other_of_its_group_is_ready() {
    let readiness = Readiness::default();
    let [first, second] =
        ["a", "b"].map(|name| readiness.check_in("Pod", &format!("Pod in {name}")));
    let other = readiness.check_in("Deployment", "Deployment in a");
    other.ready();
    first.refused("no");
    assert_eq!(
        readiness.pending(),
        ["Pod in a: no", "Pod in b: has not been ready yet"]
    );
    second.refused("no");
    assert_eq!(readiness.pending(), ["Pod in a: no", "Pod in b: no"]);
    second.ready();
    assert_eq!(readiness.pending(), Vec::<String>::new());
    second.not_ready("lost");
    assert_eq!(readiness.pending(), ["Pod in a: no", "Pod in b: lost"]);
}

/// ADM-29
#[tokio::test]
async fn process_is_not_ready_before_its_checks_are_registered() {
    let readiness = Readiness::starting();
    let starting = "process: starting".to_owned();
    assert_eq!(get(&readiness, "/readyz").await, (503, starting));
    let actors = readiness.check("watch AsyncActor");
    let process = readiness.check(PROCESS);
    process.ready();
    assert_eq!(get(&readiness, "/readyz").await.0, 503);
    actors.ready();
    assert_eq!(get(&readiness, "/readyz").await.0, 200);
}

/// FW-4
#[tokio::test(start_paused = true)]
async fn all_ready_waits_until_all_checks_pass_at_the_same_time() {
    let readiness = Readiness::default();
    let actors = readiness.check("watch AsyncActor");
    let pods = readiness.check("watch Pod");
    let waiter = readiness.clone();
    let all_ready = tokio::spawn(async move { waiter.all_ready().await });
    actors.ready();
    actors.not_ready("the connection broke");
    pods.ready();
    // Paused time advances only once no task can make progress.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!all_ready.is_finished());
    actors.ready();
    timeout(Duration::from_secs(5), all_ready)
        .await
        .expect("all are ready")
        .unwrap();
}

/// OPS-6
#[tokio::test]
async fn unready_process_is_alive() {
    let readiness = Readiness::default();
    let _check = readiness.check("watch AsyncActor");
    assert_eq!(get(&readiness, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(get(&readiness, "/metrics").await.0, 404);
}

/// OPS-1
#[tokio::test]
async fn bind_error_names_the_address_and_its_flag() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let in_use = listener.local_addr().unwrap().to_string();
    for address in [in_use.as_str(), "127.0.0.1:99999", ":none", "8080", ""] {
        let error = bind(address, "--metrics-bind-address")
            .await
            .unwrap_err()
            .to_string();
        let expected = format!("cannot listen on {address:?} (--metrics-bind-address): ");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// OPS-1
#[tokio::test]
async fn address_0_disables_the_server() {
    assert!(bind("0", "--metrics-bind-address").await.unwrap().is_none());
}
