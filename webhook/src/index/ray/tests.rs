use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Contact, Index, Seen};
use super::follow;
use crate::testing::{Fake, platform};

fn cluster(name: &str) -> Value {
    let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm", "uid": "s", "controller": true});
    json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "6", "ownerReferences": [owner]},
    })
}

fn service() -> Seen {
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

async fn until(holds: impl AsyncFn() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_mins(2);
    while !holds().await {
        assert!(tokio::time::Instant::now() < limit);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// SAFE-31, RES-5
#[tokio::test(start_paused = true)]
async fn clusters_are_watched_only_while_a_service_is_bound() {
    let (fake, index) = (Fake::default(), Arc::new(Index::new(platform())));
    *fake.listed.lock().await = vec![cluster("llm-listed")];
    let following = tokio::spawn(follow(fake.client(&Contact::default()), Arc::clone(&index)));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fake.asked(), 0, "nobody binds a RayService");

    let actor = service();
    index.show(&actor.actor);
    until(async || is_known(&index, "llm-listed") && fake.asked() == 2).await;
    fake.tell("ADDED", &cluster("llm-added")).await;
    until(async || is_known(&index, "llm-added")).await;
    fake.tell("DELETED", &cluster("llm-listed")).await;
    until(async || !is_known(&index, "llm-listed")).await;

    index.removed(&actor.actor.key);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = fake.asked();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(fake.asked(), asked, "the watch has ended");
    index.show(&actor.actor);
    assert!(!is_known(&index, "llm-added"), "what was known may be old");
    until(async || is_known(&index, "llm-listed")).await;
    assert!(!following.is_finished());
}

/// SAFE-31
#[tokio::test(start_paused = true)]
async fn watch_that_is_refused_is_tried_again_at_increasing_intervals() {
    let (fake, index) = (Fake::default(), Arc::new(Index::new(platform())));
    *fake.down.lock().await = Some(http::StatusCode::FORBIDDEN);
    tokio::spawn(follow(fake.client(&Contact::default()), Arc::clone(&index)));
    index.show(&service().actor);
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!((10..=30).contains(&fake.asked()), "{}", fake.asked());
    *fake.listed.lock().await = vec![cluster("llm-listed")];
    *fake.down.lock().await = None;
    until(async || is_known(&index, "llm-listed")).await;
}
