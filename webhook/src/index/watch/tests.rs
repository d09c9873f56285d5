use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Index, LastResponse, follow};
use crate::testing::{Fake, installation};

fn actor(name: &str, version: &str) -> Value {
    let mut actor = crate::testing::actor("a", name, &json!({"transport": "mq"}));
    actor["metadata"]["resourceVersion"] = json!(version);
    actor
}

struct Fixture {
    fake: Fake,
    index: Arc<Index>,
    last_response: LastResponse,
    following: tokio::task::JoinHandle<()>,
}

impl Fixture {
    async fn start(fake: Fake) -> Self {
        *fake.listed.lock().await = vec![actor("listed", "1")];
        let (index, last_response) = (
            Arc::new(Index::new(installation())),
            LastResponse::default(),
        );
        let client = fake.client(&last_response);
        let following = follow(client, Arc::clone(&index), last_response.clone());
        Self {
            fake,
            index,
            last_response,
            following: tokio::spawn(following),
        }
    }

    async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let limit = tokio::time::Instant::now() + Duration::from_mins(2);
        while !condition(self) {
            assert!(!self.following.is_finished() && tokio::time::Instant::now() < limit);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn index_follows_lists_and_events() {
    let fixture = Fixture::start(Fake::default()).await;
    fixture
        .until(|fixture| fixture.index.is_synced() && fixture.fake.requests() == 2)
        .await;
    assert_eq!(fixture.index.len(), 1);
    fixture.fake.send_event("ADDED", &actor("new", "6")).await;
    fixture.until(|fixture| fixture.index.len() == 2).await;
    fixture
        .fake
        .send_event("DELETED", &actor("listed", "7"))
        .await;
    fixture.until(|fixture| fixture.index.len() == 1).await;
}

/// VAC-5
#[tokio::test(start_paused = true)]
async fn contact_is_kept_while_nothing_changes() {
    let fixture = Fixture::start(Fake::default()).await;
    assert!(fixture.last_response.is_stale() && fixture.last_response.age().is_none());
    fixture
        .until(|fixture| fixture.index.is_synced() && fixture.fake.requests() == 2)
        .await;
    assert!(!fixture.last_response.is_stale());

    // Each watch ends by itself, and starting the next one counts as a response.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let requests = fixture.fake.requests();
        fixture.fake.cut().await;
        fixture
            .until(|fixture| fixture.fake.requests() > requests)
            .await;
        assert!(fixture.last_response.age().unwrap() < Duration::from_secs(2));
    }

    *fixture.fake.down.lock().await = Some(StatusCode::SERVICE_UNAVAILABLE);
    fixture.fake.cut().await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(!fixture.last_response.is_stale());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(fixture.last_response.is_stale());
    // The index keeps its actors.
    assert_eq!(fixture.index.len(), 1);

    *fixture.fake.down.lock().await = None;
    fixture.until(|it| !it.last_response.is_stale()).await;
    assert_eq!(fixture.last_response.failure(), None);
}

/// VAC-5: while nothing changes, only the next watch shows that the API server responds.
#[tokio::test(start_paused = true)]
async fn watch_ends_before_the_index_counts_as_stale() {
    let fixture = Fixture::start(Fake::default()).await;
    fixture
        .until(|fixture| fixture.index.is_synced() && fixture.fake.requests() == 2)
        .await;
    let query = fixture.fake.watch_query.lock().await.clone();
    let mut parameters = query.split('&');
    let seconds = parameters.find_map(|it| it.strip_prefix("timeoutSeconds="));
    let timeout = Duration::from_secs(seconds.unwrap().parse().unwrap());
    assert!(timeout < LastResponse::STALE_AFTER, "{query}");
}

/// AVL-2 (a): the CRD does not exist yet.
#[tokio::test(start_paused = true)]
async fn failure_of_the_first_list_is_reported() {
    let fake = Fake::default();
    *fake.down.lock().await = Some(StatusCode::NOT_FOUND);
    let fixture = Fixture::start(fake).await;
    fixture
        .until(|fixture| fixture.last_response.failure().is_some())
        .await;
    let failure = fixture.last_response.failure().unwrap();
    assert!(failure.contains("unavailable"), "{failure}");
    assert!(!fixture.index.is_synced());
    *fixture.fake.down.lock().await = None;
    fixture.until(|it| it.index.is_synced()).await;
}

#[tokio::test(start_paused = true)]
async fn failed_list_is_retried_with_backoff() {
    let fake = Fake::default();
    *fake.down.lock().await = Some(StatusCode::NOT_FOUND);
    let fixture = Fixture::start(fake).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    // After 0, 0.25, 0.75, 1.75, 3.75, 7.75 and 15.75 s, then every 10 s; jitter may halve each delay.
    let requests = fixture.fake.requests();
    assert!(
        (10..=20).contains(&requests),
        "{requests} lists in a minute"
    );
}
