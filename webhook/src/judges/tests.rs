use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Judges;
use crate::actor::{Actors, Mode};
use crate::deletion::Deletions;
use crate::events::{Events, events};
use crate::facts::Known;
use crate::index::{Contact, Index, follow};
use crate::metrics::Metrics;
use crate::outcome::Path;
use crate::pod::Pods;
use crate::routes::routes;
use crate::testing::{Fake, actor, actor_review, binding, bound, platform, pod, pod_review, show};

async fn ask(router: &Router, path: Path, review: String) -> Value {
    let request = Request::post(path.label())
        .header("content-type", "application/json")
        .body(Body::from(review))
        .unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20)
        .await
        .unwrap();
    serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
}

fn desk(index: Arc<Index>, contact: Contact, events: Events) -> Router {
    let namespace = "asya-system".to_owned();
    let judges = Judges {
        actors: Actors {
            mode: Mode::Enforce,
            namespace: namespace.clone(),
            index: Arc::clone(&index),
            contact,
            facts: Known::default(),
        },
        deletions: Deletions {
            mode: Mode::Enforce,
            index: Arc::clone(&index),
        },
        pods: Pods { namespace, index },
        events,
    };
    routes(judges, Arc::new(Metrics::new()))
}

/// ADM-7
#[tokio::test(start_paused = true)]
async fn ten_thousand_reviews_send_no_request_to_the_api_server() {
    let fake = Fake::default();
    *fake.listed.lock().await = vec![bound("models", "mild", "mild")];
    let (index, contact) = (Arc::new(Index::new(platform())), Contact::default());
    let client = fake.client(&contact);
    tokio::spawn(follow(client.clone(), Arc::clone(&index), contact.clone()));
    let (told, writer) = events(client, "pod-1");
    tokio::spawn(writer.run());
    // One list and one watch: no other request is sent in the background.
    while !index.is_synced() || fake.asked() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let router = desk(index, contact, told);
    let rival = actor("models", "rival", &binding("Deployment", "mild"));
    let mut odd = pod("mild");
    odd["spec"]["hostNetwork"] = json!(true);
    for _ in 0..2_500 {
        let injected = ask(
            &router,
            Path::Pods,
            pod_review("models", &pod("mild"), true),
        )
        .await;
        assert_eq!(injected["patchType"], "JSONPatch");
        let marked = ask(&router, Path::Pods, pod_review("models", &odd, true)).await;
        assert_eq!(marked["warnings"].as_array().unwrap().len(), 1);
        let nobody = ask(&router, Path::Pods, pod_review("models", &pod("x"), false)).await;
        assert_eq!(nobody, json!({"uid": "u", "allowed": true}));
        let refused = ask(&router, Path::Actors, actor_review("models", &rival, false)).await;
        assert_eq!(refused["status"]["code"], 422);
    }
    assert_eq!(fake.asked(), 2);

    // Events are written after the response.
    ask(
        &router,
        Path::Pods,
        pod_review("models", &pod("mild"), false),
    )
    .await;
    assert_eq!(fake.asked(), 2);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(fake.asked(), 4);
}

/// ADM-3: every damaged review gets a response that the API server understands.
#[tokio::test]
async fn damaged_reviews_are_answered() {
    let (index, contact) = (Arc::new(Index::new(platform())), Contact::default());
    index.relisting();
    show(&index, &bound("models", "mild", "mild"));
    index.relisted();
    contact.heard();
    let (told, _writer) = events(Fake::default().client(&contact), "pod-1");
    let router = desk(index, contact, told);
    let actor = actor("models", "a", &binding("Deployment", "x"));
    let whole = [
        (Path::Pods, pod_review("models", &pod("mild"), false)),
        (
            Path::RequiredPods,
            pod_review("models", &pod("mild"), false),
        ),
        (Path::Actors, actor_review("models", &actor, false)),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..5_000 {
        let (path, review) = &whole[random.usize(..whole.len())];
        let body = damaged(&mut random, review.as_bytes());
        let request = Request::post(path.label()).header("content-type", "application/json");
        let request = request.body(Body::from(body.clone())).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let said = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .unwrap();
        let body = String::from_utf8_lossy(&body);
        match status {
            200 => {
                let review: Value = serde_json::from_slice(&said).unwrap();
                assert!(review["response"]["allowed"].is_boolean(), "{body}");
                assert_ne!(review["response"]["status"]["code"], 500, "{body}");
            }
            status => assert_eq!(status, 400, "{body}"),
        }
    }
    for deep in ["[".repeat(100_000), r#"{"request":"#.repeat(100_000)] {
        let request = Request::post(Path::Pods.label()).header("content-type", "application/json");
        let request = request.body(Body::from(deep)).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 400);
    }
}

/// The body with a piece replaced, doubled or cut out.
fn damaged(random: &mut fastrand::Rng, whole: &[u8]) -> Vec<u8> {
    const PIECES: [&str; 8] = [
        "null", "{}", "[]", "7", "\"\"", "true", "\\u0000", "{\"a\":",
    ];
    let mut body = whole.to_vec();
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
