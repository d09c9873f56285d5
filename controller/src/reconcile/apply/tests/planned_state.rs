//! Verification of a plan before a queue is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::ACTOR;
use crate::broker::{BrokerError, DeletionGuard};
use crate::fault::Error;
use crate::reconcile::apply::verify_unchanged::PlannedState;
use crate::reconcile::tests::fixtures::{actor, context_of, context_with, observed, spec};

fn planned() -> Value {
    actor(&json!({}), &spec(&json!({})), &json!({}))
}

/// QUE-30
#[tokio::test]
async fn queue_is_kept_if_its_actor_has_changed_or_is_gone() {
    type Responses = fn(&str) -> Option<(u16, Value)>;
    let gone: Responses = |_| {
        let text =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        Some((404, text))
    };
    let changed: Responses = |request| {
        let retained = spec(&json!({"queue": {"deletionPolicy": "Retain"}}));
        let current = actor(&json!({"generation": 7}), &retained, &json!({}));
        (request == format!("GET {ACTOR}")).then_some((200, current))
    };
    for responses in [gone, changed] {
        let context = context_with(responses);
        let observed = observed(&planned());
        let planned = PlannedState::new(&context, &observed.actor, None);
        let result = planned.verify().await;
        assert!(
            matches!(result, Err(Error::Stale("the actor"))),
            "{result:?}"
        );
        let result = planned.confirm().await;
        assert!(
            matches!(result, Err(BrokerError::Unconfirmed(_))),
            "{result:?}"
        );
    }
}

/// QUE-30: the API server may have read the actor when the request was sent.
#[tokio::test(start_paused = true)]
async fn verification_is_valid_for_three_seconds_from_the_request_and_shared_for_one() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        counted.fetch_add(1, SeqCst);
        async {
            sleep(Duration::from_millis(800)).await;
            let body = kube::client::Body::from(planned().to_string().into_bytes());
            Ok::<_, tower::BoxError>(http::Response::new(body))
        }
    });
    let context = context_of(kube::Client::new(server, "default"));
    let observed = observed(&planned());
    let planned = PlannedState::new(&context, &observed.actor, None);
    let started = Instant::now();
    let until = started + Duration::from_secs(3);
    assert_eq!(planned.confirm().await, Ok(until));
    assert_eq!(planned.confirm().await, Ok(until));
    assert_eq!(requests.load(SeqCst), 1);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(planned.confirm().await, Ok(until + Duration::from_secs(1)));
    assert_eq!(requests.load(SeqCst), 2);
}
