use std::sync::Arc;
use std::time::{Duration, Instant};

use asya_process::metrics::ExposedMetrics;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request as HttpRequest, StatusCode};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{MAX_BODY_BYTES, MAX_INLINE_BYTES, ReviewHandler, ReviewServer, routes, routes_of};
use crate::events::PodEvent;
use crate::metrics::Metrics;
use crate::outcome::{EndpointPath, ReviewOutcome, ReviewPath, ReviewReason};
use crate::review::AdmissionRequest;

/// Behavior of the test's handler.
#[derive(Clone, Copy)]
enum StubHandler {
    Allows,
    Panics,
}

impl ReviewHandler for StubHandler {
    fn handle(&self, _: EndpointPath, _: &AdmissionRequest<'_>) -> ReviewOutcome {
        match self {
            Self::Allows => ReviewOutcome::allowed(ReviewReason::Valid),
            Self::Panics => panic!("a fault"),
        }
    }

    fn publish(&self, _: PodEvent) {}
}

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u1", "operation": "CREATE", "dryRun": true},
    })
}

fn post(path: EndpointPath, body: impl Into<Body>) -> HttpRequest<Body> {
    HttpRequest::post(path.label())
        .header("content-type", "application/json; charset=utf-8")
        .body(body.into())
        .unwrap()
}

async fn send(router: &Router, request: HttpRequest<Body>) -> (StatusCode, String) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), MAX_BODY_BYTES)
        .await
        .unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn response(router: &Router, path: EndpointPath) -> Value {
    let (status, body) = send(router, post(path, review().to_string())).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["response"].clone()
}

fn router_for(handler: StubHandler) -> (Router, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    (routes(handler, Arc::clone(&metrics)), metrics)
}

/// ADM-1
#[tokio::test]
async fn every_path_serves_reviews() {
    let (router, _) = router_for(StubHandler::Allows);
    for path in EndpointPath::ALL {
        assert_eq!(
            response(&router, path).await,
            json!({"uid": "u1", "allowed": true})
        );
    }
    let unknown = HttpRequest::post("/validate/pods")
        .body(Body::empty())
        .unwrap();
    assert_eq!(send(&router, unknown).await.0, StatusCode::NOT_FOUND);
}

/// ADM-3
#[tokio::test]
async fn bad_requests_get_a_code_and_one_line() {
    let (router, metrics) = router_for(StubHandler::Allows);
    let typed = |media: &str| {
        HttpRequest::post(EndpointPath::Pods(ReviewPath::Optional).label())
            .header("content-type", media)
            .body(Body::from(review().to_string()))
            .unwrap()
    };
    let get = HttpRequest::get(EndpointPath::Pods(ReviewPath::Optional).label())
        .body(Body::empty())
        .unwrap();
    let untyped = HttpRequest::post(EndpointPath::Pods(ReviewPath::Optional).label())
        .body(Body::empty())
        .unwrap();
    let beta = review().to_string().replace("k8s.io/v1", "k8s.io/v1beta1");
    let rows = [
        (
            post(EndpointPath::Pods(ReviewPath::Optional), "{"),
            400,
            "admission.k8s.io/v1",
        ),
        (
            post(EndpointPath::Pods(ReviewPath::Optional), ""),
            400,
            "request.uid",
        ),
        (
            post(EndpointPath::Pods(ReviewPath::Optional), "[1]"),
            400,
            "line 1",
        ),
        (
            post(EndpointPath::Pods(ReviewPath::Optional), beta),
            400,
            "apiVersion or kind",
        ),
        (get, 405, ""),
        (untyped, 415, "application/json"),
        (typed("application/yaml"), 415, "application/json"),
        (typed("application/jsonp"), 415, "application/json"),
    ];
    for (row, (request, code, text)) in rows.into_iter().enumerate() {
        let (status, body) = send(&router, request).await;
        assert_eq!(status.as_u16(), code, "row {row}: {body}");
        assert!(
            body.contains(text) && !body.contains('\n'),
            "row {row}: {body}"
        );
    }
    let text = metrics.text().unwrap();
    assert!(
        text.contains(r#"result="error",reason="BadRequest""#),
        "{text}"
    );
}

/// ADM-3: a body whose content length exceeds the limit is not read at all; any other is read only up to the limit.
#[tokio::test]
async fn bodies_beyond_8_mib_are_not_read() {
    let (router, _) = router_for(StubHandler::Allows);
    let mut announced = post(
        EndpointPath::Actors,
        Body::from_stream(futures::stream::pending::<Piece>()),
    );
    let headers = announced.headers_mut();
    headers.insert("content-length", (MAX_BODY_BYTES + 1).into());
    assert_eq!(
        send(&router, announced).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );

    let pieces = futures::stream::repeat_with(|| Piece::Ok(Bytes::from(vec![b' '; 1 << 20])));
    let unannounced = post(
        EndpointPath::Actors,
        Body::from_stream(pieces.take(9).chain(futures::stream::pending())),
    );
    assert_eq!(
        send(&router, unannounced).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );

    let mut largest = review().to_string();
    largest.push_str(&" ".repeat(MAX_BODY_BYTES - largest.len()));
    assert_eq!(
        send(&router, post(EndpointPath::Actors, largest)).await.0,
        StatusCode::OK
    );
}

type Piece = Result<Bytes, std::io::Error>;

/// ADM-3
#[tokio::test]
async fn failure_policy_of_the_path_decides_after_a_panic() {
    let (router, metrics) = router_for(StubHandler::Panics);
    let required = response(&router, EndpointPath::Pods(ReviewPath::Required)).await;
    assert_eq!(required["allowed"], false);
    assert_eq!(required["status"]["code"], 500);
    for path in [
        EndpointPath::Pods(ReviewPath::Optional),
        EndpointPath::Actors,
    ] {
        let fallback = response(&router, path).await;
        assert_eq!(fallback["allowed"], true);
        assert_eq!(fallback["warnings"].as_array().unwrap().len(), 1);
    }
    let text = metrics.text().unwrap();
    let counted = r#"reviews_total{path="/mutate/pods",operation="CREATE",result="error",reason="InternalError",dry_run="true"} 1"#;
    assert!(text.contains(counted), "{text}");
    assert!(text.contains("asya_webhook_in_flight 0"), "{text}");
}

/// ADM-3
#[tokio::test(start_paused = true)]
async fn request_that_does_not_arrive_times_out_after_2_s() {
    let (router, metrics) = router_for(StubHandler::Allows);
    let started = tokio::time::Instant::now();
    let slow = Body::from_stream(futures::stream::pending::<Piece>());
    let (status, _) = send(
        &router,
        post(EndpointPath::Pods(ReviewPath::Required), slow),
    )
    .await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(started.elapsed().as_secs(), 2);
    let text = metrics.text().unwrap();
    assert!(text.contains(r#"reason="Deadline""#), "{text}");
    assert!(text.contains("asya_webhook_in_flight 0"), "{text}");
}

/// AVL-6, ADM-22
#[tokio::test(start_paused = true)]
async fn stalled_bodies_do_not_block_reviews() {
    let (router, metrics) = router_for(StubHandler::Allows);
    let stalling = (0..600).map(|_| {
        let body = Body::from_stream(futures::stream::pending::<Piece>());
        send(
            &router,
            post(EndpointPath::Pods(ReviewPath::Optional), body),
        )
    });
    let review = async {
        while !metrics.text().unwrap().contains("in_flight 600") {
            tokio::task::yield_now().await;
        }
        let started = tokio::time::Instant::now();
        assert_eq!(
            response(&router, EndpointPath::Pods(ReviewPath::Optional)).await["allowed"],
            true
        );
        started.elapsed()
    };
    let (stalled, elapsed) = tokio::join!(join_all(stalling), review);
    assert_eq!(elapsed, Duration::ZERO);
    let timed_out = |response: &(StatusCode, String)| response.0 == StatusCode::SERVICE_UNAVAILABLE;
    assert!(stalled.iter().all(timed_out));
}

/// ADM-22: of 40 bodies of 8 MiB, which exceed the budget, each completes or is refused, while concurrent reviews are
/// answered.
#[tokio::test(start_paused = true)]
async fn large_bodies_beyond_the_budget_are_refused_and_reviews_are_answered() {
    let (router, metrics) = router_for(StubHandler::Allows);
    let large = (0..40).map(|_| {
        let piece = || Piece::Ok(Bytes::from(vec![b' '; 1 << 20]));
        let pieces = futures::stream::repeat_with(piece).take(7);
        let pieces = pieces.then(async |piece| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            piece
        });
        let text = Piece::Ok(Bytes::from(review().to_string()));
        let body = Body::from_stream(pieces.boxed().chain(futures::stream::iter([text])));
        send(
            &router,
            post(EndpointPath::Pods(ReviewPath::Optional), body),
        )
    });
    let reviews = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(
                response(&router, EndpointPath::Pods(ReviewPath::Optional)).await["allowed"],
                true
            );
        }
    };
    let (large, ()) = tokio::join!(join_all(large), reviews);
    let count = |code| large.iter().filter(|response| response.0 == code).count();
    let (completed, refused) = (
        count(StatusCode::OK),
        count(StatusCode::SERVICE_UNAVAILABLE),
    );
    assert_eq!(completed + refused, 40);
    // There is room for four, of which one may be shed.
    assert!((3..40).contains(&completed), "{completed}");
    let text = metrics.text().unwrap();
    assert!(text.contains(r#"reason="Busy""#), "{text}");
}

/// ADM-22: 8 MiB of empty containers would become 800 MiB.
#[tokio::test]
async fn body_with_too_many_values_is_refused_before_decoding() {
    let (router, _) = router_for(StubHandler::Panics);
    let mut body = review().to_string();
    let containers = "{},".repeat(1 << 20);
    body.insert_str(body.len() - 2, &format!(r#","object":[{containers}{{}}]"#));
    let (status, text) = send(
        &router,
        post(EndpointPath::Pods(ReviewPath::Optional), body),
    )
    .await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{text}");
    assert!(text.contains("too many values"), "{text}");
}

/// ADM-22: while a large body is decoded, other reviews are answered, and further large bodies wait. Its memory stays
/// reserved until then, even if its client has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn large_bodies_are_decoded_one_at_a_time_beside_other_reviews() {
    let handler = SlowHandler::default();
    let finish = handler.finish.clone().drop_guard();
    let server = ReviewServer::new(handler.clone(), Arc::new(Metrics::new()));
    let router = routes_of(Arc::clone(&server));
    let mut body = review().to_string();
    body.push_str(&" ".repeat(MAX_INLINE_BYTES));
    let send_large = || {
        let (router, body) = (router.clone(), body.clone());
        tokio::spawn(async move {
            send(
                &router,
                post(EndpointPath::Pods(ReviewPath::Optional), body),
            )
            .await
            .0
        })
    };
    let gone = send_large();
    handler.started.acquire().await.unwrap().forget();
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert!(
        server.bodies.used() > MAX_INLINE_BYTES,
        "its memory is free"
    );
    let waiting = [send_large(), send_large()];

    for _ in 0..50 {
        let router = router.clone();
        let small = tokio::spawn(async move { response(&router, EndpointPath::Actors).await });
        assert_eq!(small.await.unwrap()["allowed"], true);
    }
    assert_eq!(handler.started.available_permits(), 0);

    drop(finish);
    for status in join_all(waiting).await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    assert_eq!(handler.started.available_permits(), 2);
}

/// Blocks each pod review until `finish`, or for 10 s.
#[derive(Clone)]
struct SlowHandler {
    /// One permit for each review of a pod that has started.
    started: Arc<Semaphore>,
    finish: CancellationToken,
}

impl Default for SlowHandler {
    fn default() -> Self {
        Self {
            started: Arc::new(Semaphore::new(0)),
            finish: CancellationToken::new(),
        }
    }
}

impl ReviewHandler for SlowHandler {
    fn handle(&self, path: EndpointPath, _: &AdmissionRequest<'_>) -> ReviewOutcome {
        if path == EndpointPath::Pods(ReviewPath::Optional) {
            self.started.add_permits(1);
            let started = Instant::now();
            while !self.finish.is_cancelled() && started.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
        }
        ReviewOutcome::allowed(ReviewReason::Valid)
    }

    fn publish(&self, _: PodEvent) {}
}
