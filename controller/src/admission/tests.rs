use std::sync::Mutex;

use asya_certs::ca_bundle::CaBundle;
use asya_certs::mint::{self, Authority};
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
            let (status, answer) = if head.method == http::Method::GET {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
                (404, status)
            } else {
                let mut object: Value = serde_json::from_slice(&body)?;
                object["metadata"]["uid"] = json!("uid");
                object["metadata"]["resourceVersion"] = json!("2");
                written.lock().unwrap().push(object.clone());
                (200, object)
            };
            let answer = Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().status(status).body(answer);
            answer.map_err(tower::BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// Feeds the watch a complete list of `objects`.
fn listed<R: Record>(watch: &Watch<R>, objects: &[Value]) {
    watch.store.relisting(&None);
    for object in objects {
        let seen: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
        watch.store.show(&None, &seen);
    }
    watch.store.relisted(&None);
}

/// ADM-25
#[tokio::test(start_paused = true)]
async fn trusted_cas_are_published_after_a_corrupted_entry_is_repaired() {
    let (written, operator, trust) = (Arc::default(), operator(), Trust::default());
    let names = vec!["asya-webhook.asya-system.svc".to_owned()];
    let authority = Authority::new(&mint::Settings::of(names), Timestamp::now()).unwrap();
    let bundle = CaBundle::read(authority.certificate.pem().as_bytes());
    let wanted: Vec<_> = bundle.fingerprints().map(|it| it.to_string()).collect();
    trust.want(bundle);
    let plan = WebhookConfigPlan {
        release: "asya".to_owned(),
        namespace: "asya-system".to_owned(),
        endpoint: Endpoint::Url("https://webhook:1".to_owned()),
        replicas: None,
        spread: Duration::from_secs(30),
    };
    let mut keeper = WebhookConfigManager::new(
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
    listed(&keeper.anchors.watch(metrics), &[anchor]);
    let spoiled = json!({
        "metadata": metadata("asya-validator"),
        "webhooks": [{
            "name": "actors.asya.sh", "clientConfig": {"caBundle": "c3BvaWxlZA=="},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    listed(&keeper.validating.watch(metrics), &[spoiled]);
    listed(&keeper.mutating.watch(metrics), &[]);
    // Facts are published only once every kind has been discovered.
    for GroupKind { group, kind } in known_kinds() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let kinds = &operator.context.bindings.kinds;
        kinds.serve(group, kind, resource);
    }
    keeper.try_pass().await.unwrap();
    let written = written.lock().unwrap();
    let kinds: Vec<_> = written
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["ValidatingWebhookConfiguration", "ConfigMap"]);
    let told = written[1]["data"].to_string();
    assert!(wanted.iter().all(|it| told.contains(it)), "{told}");
}
