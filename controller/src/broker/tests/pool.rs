//! How long clients are kept.

use std::time::Duration;

use http::Response;
use kube::Client;
use kube::client::Body;
use tokio::time::sleep;
use tower::{BoxError, service_fn};

use super::*;
use crate::broker::pool::Pool;

/// A pool with an API server that returns namespace `kube-system` to every request.
fn pool() -> Pool {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = service_fn(async |_: http::Request<Body>| {
        let namespace = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "kube-system", "uid": HERE},
        });
        let body = Body::from(namespace.to_string().into_bytes());
        Ok::<_, BoxError>(Response::new(body))
    });
    Pool::new(
        Client::new(server, "default"),
        "asya-system",
        Fence::unrestricted(),
        Arc::default(),
        1,
        over_network(),
    )
}

/// QUE-8: each changed password makes another client.
#[tokio::test(start_paused = true)]
async fn client_is_dropped_half_an_hour_after_its_last_use() {
    let pool = pool();
    let named = |name: &str| Transport {
        name: name.to_owned(),
        ..transport("rabbitmq", &json!({"host": "broker"}))
    };
    let used = async |name: &str| {
        let client = pool.client(&named(name), "ns").await;
        Arc::downgrade(&client.unwrap())
    };
    let (replaced, busy) = (used("replaced").await, used("busy").await);
    sleep(Duration::from_mins(29)).await;
    used("busy").await;
    used("first").await;
    assert!(replaced.upgrade().is_some(), "unused for 29 minutes");
    sleep(Duration::from_mins(1)).await;
    used("second").await;
    assert!(replaced.upgrade().is_none(), "unused for 30 minutes");
    assert!(busy.upgrade().is_some(), "used a minute ago");
}
