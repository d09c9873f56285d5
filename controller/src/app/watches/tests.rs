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

/// Which task of an operator ended, if its watch of actors calls `concerned` with each change.
async fn ended(concerned: fn(&Operator, Enqueue)) -> Option<String> {
    let operator = operator();
    let tasks = operator.tasks.clone();
    let actors = operator.context.stores.actors.clone();
    let watches = Watches::new(operator, server());
    tokio::spawn(watches.task(&None, &actors, None, concerned));
    timeout(Duration::from_secs(5), tasks.ended()).await.ok()
}

/// ADM-28
#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_reported_and_ends_the_process() {
    assert_eq!(ended(|_, _| {}).await, None);
    let told = ended(|_, _| panic!("a fault")).await;
    assert_eq!(told.as_deref(), Some("watch AsyncActor panicked"));
}
