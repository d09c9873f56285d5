//! Verification of a plan before a queue is deleted or a pod is evicted.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use asya_shared::resolve::ObjectRef;
use kube::api::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{ACTOR, pod};
use crate::broker::{BrokerError, DeletionGuard};
use crate::fault::Error;
use crate::reconcile::apply::evict;
use crate::reconcile::apply::verify_unchanged::PlannedState;
use crate::reconcile::model::availability::{Availability, AvailabilitySource};
use crate::reconcile::tests::fixtures::{
    actor, context, context_of, context_with, just_read, observed, spec,
};
use crate::record::Key;

fn planned() -> Value {
    actor(&json!({}), &spec(&json!({})), &json!({}))
}

/// QUE-30, FW-23 (g)
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
    let orphaned: Responses = |request| {
        let finalizers = json!(["asya.sh/finalizer", "orphan"]);
        let metadata = json!({"finalizers": finalizers});
        let current = actor(&metadata, &spec(&json!({})), &json!({}));
        (request == format!("GET {ACTOR}")).then_some((200, current))
    };
    for responses in [gone, changed, orphaned] {
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

/// SAFE-11: the broker may have answered slowly since the pods were listed.
#[tokio::test(start_paused = true)]
async fn pod_is_evicted_only_while_the_availability_that_this_relies_on_holds() {
    let worker = |name: &str, ready: &str| {
        json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name,
                "labels": {"ray.io/cluster": "rc", "ray.io/node-type": "worker"},
                "ownerReferences": [
                    {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "rc", "uid": "c", "controller": true},
                ],
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    };
    // Age of the list, status of the other pod now, delay of the response; then whether pods are listed again, and
    // whether the pod is evicted.
    for (age, status, delay, lists, evicts) in [
        (999, "False", 0, false, true),
        (1000, "True", 0, true, true),
        (1000, "True", 2999, true, true),
        (1000, "True", 3000, true, false),
        (1000, "False", 0, true, false),
    ] {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = Arc::clone(&requests);
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            sink.lock().push(request.method().to_string());
            let list = json!({"metadata": {}, "items": [worker("web-0", status), worker("web-1", "True")]});
            let success = json!({"kind": "Status", "status": "Success"});
            let answer = if request.method() == http::Method::GET {
                list
            } else {
                success
            };
            async move {
                sleep(Duration::from_millis(delay)).await;
                let body = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(http::Response::new(body))
            }
        });
        let context = context_of(kube::Client::new(server, "default"));
        let planned = just_read(2);
        sleep(Duration::from_millis(age)).await;
        let evicted = evict::evict(&context, &Key::new("ns", "a"), &pod("web-1"), &planned).await;
        let row = format!("{age} {status} {delay}: {evicted:?}");
        let expected = ["GET", "POST"].into_iter().zip([lists, evicts]);
        let expected: Vec<_> = expected
            .filter(|(_, sent)| *sent)
            .map(|(method, _)| method)
            .collect();
        assert_eq!(*requests.lock(), expected, "{row}");
        let is_stale = matches!(evicted, Err(Error::Stale("the target's pods")));
        assert_eq!(is_stale, !evicts, "{row}");
    }
    let unread = evict::evict(
        &context(),
        &Key::new("ns", "a"),
        &pod("web-1"),
        &Availability::default(),
    )
    .await;
    assert!(matches!(unread, Err(Error::Stale(_))), "{unread:?}");
}

/// SAFE-11: seed 22182 of the simulation. The target was scaled up after its objects had been read.
#[tokio::test(start_paused = true)]
async fn no_pod_is_evicted_if_the_target_should_have_more_of_them_meanwhile() {
    let web = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "StatefulSet".to_owned(),
        name: "web".to_owned(),
        uid: None,
    };
    for (replicas, evicts) in [(2, true), (3, false), (1, false)] {
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let answer = match (request.method().as_str(), request.uri().path()) {
                ("POST", _) => json!({"kind": "Status", "status": "Success"}),
                (_, "/apis/apps/v1/namespaces/ns/statefulsets/web") => json!({
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "namespace": "ns"},
                    "spec": {"replicas": replicas},
                }),
                _ => json!({"metadata": {}, "items": []}),
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            ready(Ok::<_, tower::BoxError>(http::Response::new(body)))
        });
        let context = context_of(kube::Client::new(server, "default"));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "StatefulSet"));
        context.bindings.kinds.serve("apps", "StatefulSet", kind);
        let planned = just_read(0);
        let planned = Availability {
            desired_replicas: Some(2),
            source: planned.source.map(|source| AvailabilitySource {
                replicas: vec![web.clone()],
                ..source
            }),
            ..planned
        };
        sleep(Duration::from_secs(1)).await;
        let evicted = evict::evict(&context, &Key::new("ns", "a"), &pod("web-1"), &planned).await;
        assert_eq!(evicted.is_ok(), evicts, "{replicas}: {evicted:?}");
    }
}
