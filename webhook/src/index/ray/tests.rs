use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Index, LastResponse, ProjectedActor};
use super::follow;
use crate::testing::{Fake, installation};

fn cluster(name: &str) -> Value {
    let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm", "uid": "s", "controller": true});
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "6", "ownerReferences": [owner]},
    })
}

fn service() -> ProjectedActor {
    let target = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm"});
    let actor = crate::testing::actor(
        "a",
        "llm",
        &json!({"transport": "mq", "workloadRef": target}),
    );
    serde_json::from_str(&actor.to_string()).unwrap()
}

fn is_known(index: &Index, name: &str) -> bool {
    let pods = format!("{:?}", index.bindings_in("a").first().map(|it| &it.pods));
    pods.contains(name)
}

async fn until(condition: impl AsyncFn() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_mins(2);
    while !condition().await {
        assert!(tokio::time::Instant::now() < limit);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// SAFE-31, RES-5
#[tokio::test(start_paused = true)]
async fn clusters_are_watched_only_while_a_service_is_bound() {
    let (fake, index) = (Fake::default(), Arc::new(Index::new(installation())));
    *fake.listed.lock().await = vec![cluster("llm-listed")];
    let following = tokio::spawn(follow(
        fake.client(&LastResponse::default()),
        Arc::clone(&index),
    ));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fake.requests(), 0, "no RayService is bound");

    let actor = service();
    index.apply(&actor.actor);
    until(async || is_known(&index, "llm-listed") && fake.requests() == 2).await;
    fake.send_event("ADDED", &cluster("llm-added")).await;
    until(async || is_known(&index, "llm-added")).await;
    fake.send_event("DELETED", &cluster("llm-listed")).await;
    until(async || !is_known(&index, "llm-listed")).await;

    index.delete(&actor.actor.key);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let requests = fake.requests();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(fake.requests(), requests, "the watch has ended");
    index.apply(&actor.actor);
    assert!(
        !is_known(&index, "llm-added"),
        "the previous clusters may be stale"
    );
    until(async || is_known(&index, "llm-listed")).await;
    assert!(!following.is_finished());
}

/// SAFE-31
#[tokio::test(start_paused = true)]
async fn refused_watch_is_retried_with_backoff() {
    let (fake, index) = (Fake::default(), Arc::new(Index::new(installation())));
    *fake.down.lock().await = Some(http::StatusCode::FORBIDDEN);
    tokio::spawn(follow(
        fake.client(&LastResponse::default()),
        Arc::clone(&index),
    ));
    index.apply(&service().actor);
    tokio::time::sleep(Duration::from_mins(10)).await;
    // Eight until the backoff reaches its maximum, then one every 15 to 30 s.
    assert!((25..=50).contains(&fake.requests()), "{}", fake.requests());
    *fake.listed.lock().await = vec![cluster("llm-listed")];
    *fake.down.lock().await = None;
    until(async || is_known(&index, "llm-listed")).await;
}
