use std::sync::Mutex;

use asya_certs::ca_bundle::CaBundle;
use asya_certs::mint::{self, Ca};
use asya_shared::resolve::{GroupKind, known_kinds};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::*;
use crate::app::operator::tests::operator;
use crate::cluster::watch::Watch;
use crate::record::{Projected, Record};

/// An empty API server that accepts and records every write.
fn server(written: &Arc<Mutex<Vec<Value>>>) -> Client {
    let written = Arc::clone(written);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let written = Arc::clone(&written);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (status, response) = if head.method == http::Method::GET {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                (404, status)
            } else {
                let mut object: Value = serde_json::from_slice(&body)?;
                object["metadata"]["uid"] = json!("uid");
                object["metadata"]["resourceVersion"] = json!("2");
                written.lock().unwrap().push(object.clone());
                (200, object)
            };
            let body = Body::from(response.to_string().into_bytes());
            let response = http::Response::builder().status(status).body(body);
            response.map_err(tower::BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// Delivers a complete list of `objects` to the watch.
fn list<R: Record>(watch: &Watch<R>, objects: &[Value]) {
    watch.sink.init(&None);
    for object in objects {
        let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
        watch.sink.apply(&None, &projected);
    }
    watch.sink.init_done(&None);
}

/// ADM-25
#[tokio::test(start_paused = true)]
async fn trusted_cas_are_published_after_a_corrupted_entry_is_restored() {
    let (written, operator, trust) = (Arc::default(), operator(), Trust::default());
    let names = vec!["asya-webhook.asya-system.svc".to_owned()];
    let ca = Ca::new(&mint::Settings::with_defaults(names), Timestamp::now()).unwrap();
    let bundle = CaBundle::read(ca.certificate.pem().as_bytes());
    let expected: Vec<_> = bundle.fingerprints().map(|ca| ca.to_string()).collect();
    trust.want(bundle);
    let plan = WebhookConfigPlan {
        release: "asya".to_owned(),
        namespace: "asya-system".to_owned(),
        endpoint: Endpoint::Url("https://webhook:1".to_owned()),
        replicas: None,
        propagation_time: Duration::from_secs(30),
    };
    let mut manager = WebhookConfigManager::new(
        plan,
        trust,
        server(&written),
        Arc::clone(&operator.context),
        operator.queue.clone(),
        operator.tasks.clone(),
    );
    let metrics = &operator.context.metrics;
    let metadata = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
    let anchor = json!({"metadata": metadata("asya-webhook-anchor")});
    list(&manager.anchors.watch(metrics), &[anchor]);
    let corrupted = json!({
        "metadata": metadata("asya-validator"),
        "webhooks": [{
            "name": "actors.asya.sh", "clientConfig": {"caBundle": "c3BvaWxlZA=="},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    list(&manager.validating.watch(metrics), &[corrupted]);
    list(&manager.mutating.watch(metrics), &[]);
    // Facts are published only once every kind has been discovered.
    for GroupKind { group, kind } in known_kinds() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let kinds = &operator.context.bindings.kinds;
        kinds.serve(group, kind, resource);
    }
    manager.try_reconcile().await.unwrap();
    let written = written.lock().unwrap();
    let kinds: Vec<_> = written
        .iter()
        .map(|object| object["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["ValidatingWebhookConfiguration", "ConfigMap"]);
    let published = written[1]["data"].to_string();
    assert!(
        expected.iter().all(|ca| published.contains(ca)),
        "{published}"
    );
}
