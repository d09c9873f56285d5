use std::future::pending;
use std::time::Duration;

use asya_process::metrics::ExposedMetrics;
use http::{Request, Response};
use kube::client::Body;
use tokio::time::timeout;
use tower::BoxError;

use super::*;
use crate::app::operator::tests::operator;
use crate::cluster::watch_scope::WatchScope;
use crate::reconcile::all_synced;

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
    tokio::spawn(watches.task(&WatchScope::Cluster, &actors, None, on_change));
    timeout(Duration::from_secs(5), tasks.first_failure())
        .await
        .ok()
}

/// Responds 403 to all requests in `refused` namespaces; other lists are empty, and watches send no events.
fn server_refusing(refused: &'static [&'static str]) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let is_in = |namespace: &&str| {
            let part = format!("/namespaces/{namespace}/");
            request.uri().path().contains(&part)
        };
        let (status, text) = if refused.iter().any(is_in) {
            let text =
                r#"{"status": "Failure", "code": 403, "message": "no", "reason": "Forbidden"}"#;
            (403, text)
        } else {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=true") {
                pending::<()>().await;
            }
            (
                200,
                r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#,
            )
        };
        let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
        *response.status_mut() = status.try_into()?;
        Ok::<_, BoxError>(response)
    });
    Client::new(service, "default")
}

/// FW-12
#[tokio::test(start_paused = true)]
async fn namespace_without_rights_does_not_stop_the_others() {
    let within = Duration::from_secs(5);
    for (refused, becomes_ready) in [(&[][..], true), (&["a"], true), (&["a", "b"], false)] {
        let operator = operator();
        operator.register_gauges();
        let mut watches = Watches::new(operator.clone(), server_refusing(refused));
        watches.set_scopes(
            &["a", "b"]
                .map(|name| WatchScope::Namespace(Arc::from(name)))
                .into(),
        );
        let ready = timeout(within, operator.readiness.all_ready()).await;
        assert_eq!(ready.is_ok(), becomes_ready, "{refused:?}");
        let metrics = operator.context.metrics.text().unwrap();
        for namespace in ["a", "b"] {
            let is_refused = refused.contains(&namespace);
            assert_eq!(all_synced(&operator.context, namespace), !is_refused);
            let series =
                format!(r#"asya_operator_namespace_unsynced{{namespace="{namespace}"}} 1"#);
            assert_eq!(metrics.contains(&series), is_refused, "{metrics}");
        }
    }
}

/// ADM-28
#[tokio::test(start_paused = true)]
async fn panicking_watch_is_reported_and_ends_the_process() {
    assert_eq!(ended(|_, _| {}).await, None);
    let failure = ended(|_, _| panic!("a fault")).await;
    assert_eq!(failure.as_deref(), Some("watch AsyncActor panicked"));
}
