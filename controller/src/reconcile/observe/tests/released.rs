//! Objects that the garbage collector releases while their actor is observed.

use std::sync::{Arc, OnceLock};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use crate::cluster::store::Store;
use crate::fault::Error;
use crate::reconcile::observe::observe;
use crate::reconcile::tests::fixtures::{actor, context_of, spec};
use crate::record::{ActorRecord, Key, Projected, ScaledObjectRecord};

/// The actor's `ScaledObject`, with these owners.
fn scaled_object(owners: &Value) -> Projected<ScaledObjectRecord> {
    let object = json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "so-uid", "resourceVersion": "9", "ownerReferences": owners,
        },
        "spec": {"scaleTargetRef": {"name": "a"}},
    });
    serde_json::from_value(object).unwrap()
}

/// FW-23 (g): seed 8676 of the simulation. No process saw the garbage collector's finalizer, and its watches show the
/// released objects only while the broker is asked for its messages.
#[tokio::test]
async fn actor_whose_objects_are_released_meanwhile_is_observed_again() {
    let released = Arc::new(OnceLock::<Arc<Store<ScaledObjectRecord>>>::new());
    let store = Arc::clone(&released);
    let server = tower::service_fn(move |request: Request<Body>| {
        if let Some(store) = store.get() {
            store.apply_response(&scaled_object(&json!([])));
        }
        // Nothing but the namespace exists: neither the cluster's identity nor the broker's credentials.
        let (code, answer) = match request.uri().path() {
            "/api/v1/namespaces/ns" => (200, json!({"metadata": {"name": "ns"}})),
            _ => (
                404,
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}),
            ),
        };
        let body = Body::from(answer.to_string().into_bytes());
        std::future::ready(
            Response::builder()
                .status(code)
                .body(body)
                .map_err(BoxError::from),
        )
    });
    let context = context_of(kube::Client::new(server, "default"));
    let metadata = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["asya.sh/finalizer"],
    });
    let queue = json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2});
    let entry = json!({
        "group": "keda.sh", "kind": "ScaledObject", "name": "a", "uid": "so-uid", "phase": "Applied",
    });
    let status = json!({"queue": queue, "inventory": [entry]});
    let policy = json!({"queue": {"deletionPolicy": "Drain"}});
    let manifest = actor(&metadata, &spec(&policy), &status);
    let stored: Projected<ActorRecord> = serde_json::from_value(manifest).unwrap();
    context.stores.actors.apply_response(&stored);
    let uid = &stored.record.metadata.uid;
    let owner = json!([{
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": uid, "controller": true,
    }]);
    let objects = &context.scaled_objects.store;
    objects.apply_response(&scaled_object(&owner));
    assert!(released.set(Arc::clone(objects)).is_ok());
    let key = Key::new("ns", "a");
    let now = "2026-01-01T00:00:01Z".parse().unwrap();
    let first = observe(&context, &key, now).await;
    assert!(
        matches!(first, Err(Error::Stale("the actor's objects"))),
        "{:?}",
        first.map(|_| ())
    );
    let second = observe(&context, &key, now).await.unwrap().unwrap();
    assert!(second.deletion.orphans);
}
