use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::Judges;
use crate::actor::{Actors, Mode};
use crate::events::events;
use crate::facts::Known;
use crate::index::{Contact, Index, follow};
use crate::metrics::Metrics;
use crate::outcome::Path;
use crate::pod::Pods;
use crate::routes::routes;
use crate::testing::{Fake, actor, actor_review, binding, bound, platform, pod, pod_review};

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

/// ADM-7
#[tokio::test(start_paused = true)]
async fn ten_thousand_reviews_ask_the_api_server_nothing() {
    let fake = Fake::default();
    *fake.listed.lock().await = vec![bound("models", "mild", "mild")];
    let (index, contact) = (Arc::new(Index::new(platform())), Contact::default());
    let client = fake.client(&contact);
    tokio::spawn(follow(client.clone(), Arc::clone(&index), contact.clone()));
    let (told, writer) = events(client, "pod-1");
    tokio::spawn(writer.run());
    // One list and one watch: no other request comes by itself.
    while !index.is_synced() || fake.asked() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let judges = Judges {
        actors: Actors {
            mode: Mode::Enforce,
            namespace: "asya-system".to_owned(),
            index: Arc::clone(&index),
            contact,
            facts: Known::default(),
        },
        pods: Pods {
            namespace: "asya-system".to_owned(),
            index,
        },
        events: told,
    };
    let router = routes(judges, Arc::new(Metrics::new()));
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

    // What is told comes after the answer.
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
