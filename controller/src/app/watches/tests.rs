use std::future::pending;
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use tokio::time::timeout;
use tower::BoxError;

use super::*;
use crate::app::operator::tests::operator;

/// Every list returns one object; watches send no events.
fn server() -> Client {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            pending::<()>().await;
        }
        let list = r#"{"metadata": {"resourceVersion": "7"}, "items": [{"metadata":
            {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "5"}, "spec": {}}]}"#;
        Ok::<_, BoxError>(Response::new(Body::from(list.as_bytes().to_vec())))
    });
    Client::new(service, "default")
}

/// The task that ended, if the watch of actors calls `on_change` with each change.
async fn ended(on_change: fn(&Operator, Enqueue)) -> Option<String> {
    let operator = operator();
    let tasks = operator.tasks.clone();
    let actors = operator.context.stores.actors.clone();
    let watches = Watches::new(operator, server());
    tokio::spawn(watches.task(&None, &actors, None, on_change));
    timeout(Duration::from_secs(5), tasks.first_failure())
        .await
        .ok()
}

/// ADM-28
#[tokio::test(start_paused = true)]
async fn panicking_watch_is_reported_and_ends_the_process() {
    assert_eq!(ended(|_, _| {}).await, None);
    let failure = ended(|_, _| panic!("a fault")).await;
    assert_eq!(failure.as_deref(), Some("watch AsyncActor panicked"));
}
