use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Dispatcher;
use crate::actor::{ActorReviewer, ValidationMode};
use crate::deletion::DeletionReviewer;
use crate::events::{Events, channel};
use crate::facts::SharedFacts;
use crate::index::{Index, LastResponse, follow};
use crate::metrics::Metrics;
use crate::outcome::{EndpointPath, ReviewPath};
use crate::pod::PodReviewer;
use crate::routes::routes;
use crate::testing::{
    Fake, actor, actor_review, binding, bound, index_actor, installation, pod, pod_review,
};

async fn send(router: &Router, path: EndpointPath, review: String) -> Value {
    let request = Request::post(path.label())
        .header("content-type", "application/json")
        .body(Body::from(review))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
}

fn router_for(index: Arc<Index>, last_response: LastResponse, events: Events) -> Router {
    let namespace = "asya-system".to_owned();
    let dispatcher = Dispatcher {
        actors: ActorReviewer {
            mode: ValidationMode::Enforce,
            namespace: namespace.clone(),
            index: Arc::clone(&index),
            last_response,
            facts: SharedFacts::default(),
        },
        deletions: DeletionReviewer {
            mode: ValidationMode::Enforce,
            index: Arc::clone(&index),
        },
        pods: PodReviewer { namespace, index },
        events,
    };
    routes(dispatcher, Arc::new(Metrics::new()))
}

/// ADM-7
#[tokio::test(start_paused = true)]
async fn ten_thousand_reviews_send_no_request_to_the_api_server() {
    let fake = Fake::default();
    *fake.listed.lock().await = vec![bound("models", "mild", "mild")];
    let (index, last_response) = (
        Arc::new(Index::new(installation())),
        LastResponse::default(),
    );
    let client = fake.client(&last_response);
    tokio::spawn(follow(
        client.clone(),
        Arc::clone(&index),
        last_response.clone(),
    ));
    let (events, writer) = channel(client, "pod-1");
    tokio::spawn(writer.run());
    // One list and one watch: no other request is sent in the background.
    while !index.is_synced() || fake.requests() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let router = router_for(index, last_response, events);
    let conflicting = actor("models", "other", &binding("Deployment", "mild"));
    let mut not_injectable = pod("mild");
    not_injectable["spec"]["hostNetwork"] = json!(true);
    for _ in 0..2_500 {
        let injected = send(
            &router,
            EndpointPath::Pods(ReviewPath::Optional),
            pod_review("models", &pod("mild"), true),
        )
        .await;
        assert_eq!(injected["patchType"], "JSONPatch");
        let annotated = send(
            &router,
            EndpointPath::Pods(ReviewPath::Optional),
            pod_review("models", &not_injectable, true),
        )
        .await;
        assert_eq!(annotated["warnings"].as_array().unwrap().len(), 1);
        let unbound = send(
            &router,
            EndpointPath::Pods(ReviewPath::Optional),
            pod_review("models", &pod("x"), false),
        )
        .await;
        assert_eq!(unbound, json!({"uid": "u", "allowed": true}));
        let denied = send(
            &router,
            EndpointPath::Actors,
            actor_review("models", &conflicting, false),
        )
        .await;
        assert_eq!(denied["status"]["code"], 422);
    }
    assert_eq!(fake.requests(), 2);

    // Events are written after the response.
    send(
        &router,
        EndpointPath::Pods(ReviewPath::Optional),
        pod_review("models", &pod("mild"), false),
    )
    .await;
    assert_eq!(fake.requests(), 2);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(fake.requests(), 4);
}

/// ADM-3
#[tokio::test]
async fn every_damaged_review_gets_a_valid_response() {
    let (index, last_response) = (
        Arc::new(Index::new(installation())),
        LastResponse::default(),
    );
    index.init();
    index_actor(&index, &bound("models", "mild", "mild"));
    index.init_done();
    last_response.record_response();
    let (events, _writer) = channel(Fake::default().client(&last_response), "pod-1");
    let router = router_for(index, last_response, events);
    let actor = actor("models", "a", &binding("Deployment", "x"));
    let reviews = [
        (
            EndpointPath::Pods(ReviewPath::Optional),
            pod_review("models", &pod("mild"), false),
        ),
        (
            EndpointPath::Pods(ReviewPath::Required),
            pod_review("models", &pod("mild"), false),
        ),
        (EndpointPath::Actors, actor_review("models", &actor, false)),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..5_000 {
        let (path, review) = &reviews[random.usize(..reviews.len())];
        let body = damaged(&mut random, review.as_bytes());
        let request = Request::post(path.label()).header("content-type", "application/json");
        let request = request.body(Body::from(body.clone())).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let payload = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        let body = String::from_utf8_lossy(&body);
        match status {
            200 => {
                let review: Value = serde_json::from_slice(&payload).unwrap();
                assert!(review["response"]["allowed"].is_boolean(), "{body}");
                assert_ne!(review["response"]["status"]["code"], 500, "{body}");
            }
            status => assert_eq!(status, 400, "{body}"),
        }
    }
    for nested in ["[".repeat(100_000), r#"{"request":"#.repeat(100_000)] {
        let request = Request::post(EndpointPath::Pods(ReviewPath::Optional).label())
            .header("content-type", "application/json");
        let request = request.body(Body::from(nested)).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 400);
    }
}

/// The body, truncated or with a part replaced.
fn damaged(random: &mut fastrand::Rng, original: &[u8]) -> Vec<u8> {
    const PIECES: [&str; 8] = [
        "null", "{}", "[]", "7", "\"\"", "true", "\\u0000", "{\"a\":",
    ];
    let mut body = original.to_vec();
    let from = random.usize(..body.len());
    let to = (from + random.usize(..40)).min(body.len());
    match random.u8(..4) {
        0 => body.truncate(from),
        1 => body[from] = random.u8(..),
        2 => drop(body.splice(from..to, PIECES[random.usize(..PIECES.len())].bytes())),
        // Replace a whole value.
        _ => {
            let colon = body[from..].iter().position(|byte| *byte == b':');
            let at = colon.map_or(from, |colon| from + colon + 1);
            let end = body[at..]
                .iter()
                .position(|byte| matches!(byte, b',' | b'}'));
            let end = end.map_or(body.len(), |end| at + end);
            drop(body.splice(at..end, PIECES[random.usize(..PIECES.len())].bytes()));
        }
    }
    body
}
