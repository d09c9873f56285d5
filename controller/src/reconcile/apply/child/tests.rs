use std::sync::{Arc, Mutex};

use asya_shared::applied::HashedManifest;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::{Error, Key, PlannedChild, apply_child};
use crate::cluster::impersonation::Impersonation;
use crate::cluster::objects::Objects;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::record::ChildRecord;

type Accounts = Objects<ChildRecord<ServiceAccount>>;

/// The method of each request, and the `resourceVersion` that it carried.
type Requests = Arc<Mutex<Vec<(Method, Value)>>>;

/// An API server that rejects the creation of an object with `code`, and returns `existing` as the object of that name.
fn server(code: u16, existing: &Value) -> (Accounts, Requests) {
    let requests = Requests::default();
    let recorded = Arc::clone(&requests);
    let existing = existing.clone();
    let mut refusal = json!({"status": "Failure", "code": code, "message": "no"});
    if code == 409 {
        refusal["reason"] = json!("Conflict");
    }
    let service = tower::service_fn(move |request: Request<Body>| {
        let (recorded, existing, refusal) =
            (Arc::clone(&recorded), existing.clone(), refusal.clone());
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await?;
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let version = sent["metadata"]["resourceVersion"].clone();
            let is_creation = version == "1";
            recorded.lock().unwrap().push((method, version));
            let (code, object) = match (is_creation, existing.is_null()) {
                (true, _) => (code, refusal),
                (false, true) => (
                    404,
                    json!({"status": "Failure", "code": 404, "message": "none", "reason": "NotFound"}),
                ),
                (false, false) => (200, existing),
            };
            let response = Response::builder().status(code);
            Ok::<_, BoxError>(response.body(Body::from(object.to_string().into_bytes()))?)
        }
    });
    let client = Client::new(service, "default");
    (Objects::new(&Impersonation::new(client, None)), requests)
}

fn account(controller: &str) -> Value {
    let owner = json!([{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "b", "uid": controller, "controller": true}]);
    json!({"metadata": {
        "name": "asya-a", "namespace": "ns", "uid": "7", "resourceVersion": "7", "ownerReferences": owner,
    }})
}

/// Applies a child that is not in the cache. Returns the result and the number of requests.
async fn attempt(code: u16, existing: &Value) -> (Result<Result<bool, Fault>, Error>, usize) {
    let (accounts, requests) = server(code, existing);
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let desired = HashedManifest {
        object: account("actor-uid"),
        hash: "h".to_owned(),
    };
    let key = Key::new("ns", "asya-a");
    let step = ChildStep::Apply { take_over: None };
    let existing = Child::NotFound;
    let child = PlannedChild::new(&observed.ownership, key, &step, &existing, Some(&desired));
    let applied = apply_child(&accounts, &child).await;
    let requests = requests.lock().unwrap().clone();
    assert_eq!(requests[0], (Method::PATCH, json!("1")), "{requests:?}");
    let applied = match applied {
        Ok(applied) => Ok(Ok(applied.is_some())),
        Err(failed) => failed.fault().map(Err),
    };
    (applied, requests.len())
}

/// SA-3
#[tokio::test]
async fn rejected_creation_reports_a_foreign_object_and_applies_ours() {
    for code in [409, 403, 422, 400] {
        let (applied, _) = attempt(code, &account("other")).await;
        assert_eq!(
            applied.unwrap().unwrap_err().reason,
            Reason::NotOwned,
            "{code}"
        );
        let (applied, requests) = attempt(code, &account("actor-uid")).await;
        assert!(applied.unwrap().unwrap(), "{code}: ours is applied");
        assert_eq!(requests, 3, "{code}: create, get, apply");
    }
}

/// SA-3, FW-31
#[tokio::test]
async fn rejected_creation_is_reported_if_the_name_is_free() {
    let (applied, _) = attempt(409, &Value::Null).await;
    assert!(
        matches!(applied, Err(Error::Conflict(_))),
        "it no longer exists"
    );
    let (applied, _) = attempt(403, &Value::Null).await;
    assert_eq!(applied.unwrap().unwrap_err().reason, Reason::ReconcileError);
    for code in [429, 500, 503] {
        let (applied, requests) = attempt(code, &account("other")).await;
        assert!(matches!(applied, Err(Error::Api(_))), "{code}");
        assert_eq!(requests, 1, "{code}: unrelated to the object");
    }
}
