use std::sync::Arc;
use std::time::Duration;

use asya_process::metrics::Exposed;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request as HttpRequest, StatusCode};
use futures::StreamExt;
use futures::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Judge, LARGEST, routes};
use crate::events::Told;
use crate::metrics::Metrics;
use crate::outcome::{Path, Reason, Verdict};
use crate::review::Request;

/// Behavior of the test's judge.
#[derive(Clone, Copy)]
enum Does {
    Allows,
    Panics,
}

impl Judge for Does {
    fn judge(&self, _: Path, _: &Request<'_>) -> Verdict {
        match self {
            Self::Allows => Verdict::allowed(Reason::Valid),
            Self::Panics => panic!("a fault"),
        }
    }

    fn tell(&self, _: Told) {}
}

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u1", "operation": "CREATE", "dryRun": true},
    })
}

fn post(path: Path, body: impl Into<Body>) -> HttpRequest<Body> {
    HttpRequest::post(path.label())
        .header("content-type", "application/json; charset=utf-8")
        .body(body.into())
        .unwrap()
}

async fn ask(router: &Router, request: HttpRequest<Body>) -> (StatusCode, String) {
    let answer = router.clone().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), LARGEST)
        .await
        .unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn response(router: &Router, path: Path) -> Value {
    let (status, body) = ask(router, post(path, review().to_string())).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["response"].clone()
}

fn desk(judge: Does) -> (Router, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    (routes(judge, Arc::clone(&metrics)), metrics)
}

/// ADM-1
#[tokio::test]
async fn every_path_answers_reviews() {
    let (router, _) = desk(Does::Allows);
    for path in Path::ALL {
        assert_eq!(
            response(&router, path).await,
            json!({"uid": "u1", "allowed": true})
        );
    }
    let unknown = HttpRequest::post("/validate/pods")
        .body(Body::empty())
        .unwrap();
    assert_eq!(ask(&router, unknown).await.0, StatusCode::NOT_FOUND);
}

/// ADM-3
#[tokio::test]
async fn bad_requests_get_a_code_and_one_line() {
    let (router, metrics) = desk(Does::Allows);
    let typed = |media: &str| {
        HttpRequest::post(Path::Pods.label())
            .header("content-type", media)
            .body(Body::from(review().to_string()))
            .unwrap()
    };
    let get = HttpRequest::get(Path::Pods.label())
        .body(Body::empty())
        .unwrap();
    let untyped = HttpRequest::post(Path::Pods.label())
        .body(Body::empty())
        .unwrap();
    let beta = review().to_string().replace("k8s.io/v1", "k8s.io/v1beta1");
    let rows = [
        (post(Path::Pods, "{"), 400, "admission.k8s.io/v1"),
        (post(Path::Pods, ""), 400, "request.uid"),
        (post(Path::Pods, "[1]"), 400, "line 1"),
        (post(Path::Pods, beta), 400, "apiVersion or kind"),
        (get, 405, ""),
        (untyped, 415, "application/json"),
        (typed("application/yaml"), 415, "application/json"),
        (typed("application/jsonp"), 415, "application/json"),
    ];
    for (row, (request, code, text)) in rows.into_iter().enumerate() {
        let (status, body) = ask(&router, request).await;
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

/// ADM-3: a body that announces too large a size is not read at all; any other is read up to the limit.
#[tokio::test]
async fn bodies_beyond_8_mib_are_not_read() {
    let (router, _) = desk(Does::Allows);
    let mut said = post(
        Path::Actors,
        Body::from_stream(futures::stream::pending::<Piece>()),
    );
    let headers = said.headers_mut();
    headers.insert("content-length", (LARGEST + 1).into());
    assert_eq!(ask(&router, said).await.0, StatusCode::PAYLOAD_TOO_LARGE);

    let pieces = futures::stream::repeat_with(|| Piece::Ok(Bytes::from(vec![b' '; 1 << 20])));
    let unsaid = post(
        Path::Actors,
        Body::from_stream(pieces.take(9).chain(futures::stream::pending())),
    );
    assert_eq!(ask(&router, unsaid).await.0, StatusCode::PAYLOAD_TOO_LARGE);

    let mut largest = review().to_string();
    largest.push_str(&" ".repeat(LARGEST - largest.len()));
    assert_eq!(
        ask(&router, post(Path::Actors, largest)).await.0,
        StatusCode::OK
    );
}

type Piece = Result<Bytes, std::io::Error>;

/// ADM-3
#[tokio::test]
async fn panic_is_answered_by_the_failure_policy_of_the_path() {
    let (router, metrics) = desk(Does::Panics);
    let required = response(&router, Path::RequiredPods).await;
    assert_eq!(required["allowed"], false);
    assert_eq!(required["status"]["code"], 500);
    for path in [Path::Pods, Path::Actors] {
        let answer = response(&router, path).await;
        assert_eq!(answer["allowed"], true);
        assert_eq!(answer["warnings"].as_array().unwrap().len(), 1);
    }
    let text = metrics.text().unwrap();
    let counted = r#"reviews_total{path="/mutate/pods",operation="CREATE",result="error",reason="Panicked",dry_run="true"} 1"#;
    assert!(text.contains(counted), "{text}");
    assert!(text.contains("asya_webhook_in_flight 0"), "{text}");
}

/// ADM-3
#[tokio::test(start_paused = true)]
async fn request_that_does_not_arrive_times_out_after_2_s() {
    let (router, metrics) = desk(Does::Allows);
    let started = tokio::time::Instant::now();
    let slow = Body::from_stream(futures::stream::pending::<Piece>());
    let (status, _) = ask(&router, post(Path::RequiredPods, slow)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(started.elapsed().as_secs(), 2);
    let text = metrics.text().unwrap();
    assert!(text.contains(r#"reason="Deadline""#), "{text}");
    assert!(text.contains("asya_webhook_in_flight 0"), "{text}");
}

/// AVL-6, ADM-22
#[tokio::test(start_paused = true)]
async fn stalled_bodies_do_not_block_reviews() {
    let (router, metrics) = desk(Does::Allows);
    let hanging = (0..600).map(|_| {
        let body = Body::from_stream(futures::stream::pending::<Piece>());
        ask(&router, post(Path::Pods, body))
    });
    let review = async {
        while !metrics.text().unwrap().contains("in_flight 600") {
            tokio::task::yield_now().await;
        }
        let started = tokio::time::Instant::now();
        assert_eq!(response(&router, Path::Pods).await["allowed"], true);
        started.elapsed()
    };
    let (hung, elapsed) = tokio::join!(join_all(hanging), review);
    assert_eq!(elapsed, Duration::ZERO);
    let slow = |it: &(StatusCode, String)| it.0 == StatusCode::SERVICE_UNAVAILABLE;
    assert!(hung.iter().all(slow));
}

/// ADM-22: of 40 bodies of 8 MiB, more than memory holds, each completes or is refused; a review among them is
/// answered.
#[tokio::test(start_paused = true)]
async fn large_bodies_beyond_the_memory_are_refused_and_reviews_are_answered() {
    let (router, metrics) = desk(Does::Allows);
    let large = (0..40).map(|_| {
        let piece = || Piece::Ok(Bytes::from(vec![b' '; 1 << 20]));
        let pieces = futures::stream::repeat_with(piece).take(7);
        let pieces = pieces.then(async |piece| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            piece
        });
        let text = Piece::Ok(Bytes::from(review().to_string()));
        let body = Body::from_stream(pieces.boxed().chain(futures::stream::iter([text])));
        ask(&router, post(Path::Pods, body))
    });
    let reviews = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(response(&router, Path::Pods).await["allowed"], true);
        }
    };
    let (large, ()) = tokio::join!(join_all(large), reviews);
    let count = |code| large.iter().filter(|it| it.0 == code).count();
    let (good, refused) = (
        count(StatusCode::OK),
        count(StatusCode::SERVICE_UNAVAILABLE),
    );
    assert_eq!(good + refused, 40);
    // Four have room, of which one may give way to the rest.
    assert!((3..40).contains(&good), "{good}");
    let text = metrics.text().unwrap();
    assert!(text.contains(r#"reason="Busy""#), "{text}");
}

/// ADM-22: 8 MiB of empty containers would become 800 MiB.
#[tokio::test]
async fn a_body_of_very_many_values_is_refused_before_it_is_decoded() {
    let (router, _) = desk(Does::Panics);
    let mut body = review().to_string();
    let containers = "{},".repeat(1 << 20);
    body.insert_str(body.len() - 2, &format!(r#","object":[{containers}{{}}]"#));
    let (status, text) = ask(&router, post(Path::Pods, body)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{text}");
    assert!(text.contains("too many values"), "{text}");
}
