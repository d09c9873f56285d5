use std::sync::{Arc, Mutex};

use asya_shared::applied::HashedManifest;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::{Error, Key, PlannedChild, apply_child};
use crate::cluster::impersonation::Applier;
use crate::cluster::objects::Objects;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::tests::fixtures::{actor, observed, spec};
use crate::record::ChildRecord;

type Accounts = Objects<ChildRecord<ServiceAccount>>;

/// Methods of the requests received, with the `resourceVersion` that each one carried.
type Asked = Arc<Mutex<Vec<(Method, Value)>>>;

/// A server that rejects the creation of an object with `code`, and returns `found` as the object of that name.
fn server(code: u16, found: &Value) -> (Accounts, Asked) {
    let asked = Asked::default();
    let (told, found) = (Arc::clone(&asked), found.clone());
    let mut refusal = json!({"status": "Failure", "code": code, "message": "no"});
    if code == 409 {
        refusal["reason"] = json!("Conflict");
    }
    let service = tower::service_fn(move |request: Request<Body>| {
        let (told, found, refusal) = (Arc::clone(&told), found.clone(), refusal.clone());
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await?;
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let version = sent["metadata"]["resourceVersion"].clone();
            let is_creation = version == "1";
            told.lock().unwrap().push((method, version));
            let (code, answer) = match (is_creation, found.is_null()) {
                (true, _) => (code, refusal),
                (false, true) => (
                    404,
                    json!({"status": "Failure", "code": 404, "message": "none", "reason": "NotFound"}),
                ),
                (false, false) => (200, found),
            };
            let response = Response::builder().status(code);
            Ok::<_, BoxError>(response.body(Body::from(answer.to_string().into_bytes()))?)
        }
    });
    let client = Client::new(service, "default");
    (Objects::new(&Applier::new(client, None)), asked)
}

fn account(controller: &str) -> Value {
    let owner = json!([{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "b", "uid": controller, "controller": true}]);
    json!({"metadata": {
        "name": "asya-a", "namespace": "ns", "uid": "7", "resourceVersion": "7", "ownerReferences": owner,
    }})
}

/// Applies a child that no watch shows. Returns the result and the number of requests.
async fn attempt(code: u16, found: &Value) -> (Result<Result<bool, Fault>, Error>, usize) {
    let (accounts, asked) = server(code, found);
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let wanted = HashedManifest {
        object: account("actor-uid"),
        hash: "h".to_owned(),
    };
    let key = Key::new("ns", "asya-a");
    let step = (&ChildStep::Apply { take_over: None }, &Child::Absent);
    let child = PlannedChild::new(&observed.ownership, key, step, Some(&wanted));
    let applied = apply_child(&accounts, &child).await;
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked[0], (Method::PATCH, json!("1")), "{asked:?}");
    let applied = match applied {
        Ok(applied) => Ok(Ok(applied.is_some())),
        Err(refused) => refused.fault().map(Err),
    };
    (applied, asked.len())
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
        let (applied, asked) = attempt(code, &account("actor-uid")).await;
        assert!(applied.unwrap().unwrap(), "{code}: ours is applied");
        assert_eq!(asked, 3, "{code}: created, looked at, applied");
    }
}

/// SA-3, FW-31
#[tokio::test]
async fn rejected_creation_is_reported_if_the_name_is_free() {
    let (applied, _) = attempt(409, &Value::Null).await;
    assert!(matches!(applied, Err(Error::Stale(_))), "it came and went");
    let (applied, _) = attempt(403, &Value::Null).await;
    assert_eq!(applied.unwrap().unwrap_err().reason, Reason::ReconcileError);
    for code in [429, 500, 503] {
        let (applied, asked) = attempt(code, &account("other")).await;
        assert!(matches!(applied, Err(Error::Api(_))), "{code}");
        assert_eq!(asked, 1, "{code}: it says nothing of the object");
    }
}
