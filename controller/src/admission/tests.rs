use std::slice;
use std::sync::Mutex;

use asya_certs::ca_bundle::CaBundle;
use asya_certs::issuer::{self, Ca};
use asya_shared::resolve::{GroupKind, known_kinds};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::*;
use crate::app::operator::Operator;
use crate::app::operator::tests::operator;
use crate::cluster::store::Store;
use crate::cluster::watch::Watch;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{ActorRecord, Enqueue, Projected, Record, WebhookFactsRecord};

/// Object that the API server of these tests does not store.
const REFUSED: &str = "asya-injector-3";

/// An API server that accepts and records every write, except of [`REFUSED`], and has the mutating configurations that
/// are recorded.
fn server(written: &Arc<Mutex<Vec<Value>>>) -> Client {
    let written = Arc::clone(written);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let written = Arc::clone(&written);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let failure = |code: u16, reason: &str| {
                let status =
                    json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code});
                (code, status)
            };
            let (status, response) = if head.method == http::Method::GET {
                let name = head.uri.path().rsplit('/').next().unwrap_or_default();
                let written = written.lock().unwrap();
                let is_named = |it: &&Value| {
                    it["kind"] == "MutatingWebhookConfiguration" && it["metadata"]["name"] == name
                };
                let stored = written.iter().rfind(is_named).cloned();
                stored.map_or_else(|| failure(404, "NotFound"), |object| (200, object))
            } else if head.uri.path().ends_with(REFUSED) {
                failure(413, "RequestEntityTooLarge")
            } else {
                let mut object: Value = serde_json::from_slice(&body)?;
                object["metadata"]["uid"] = json!("uid");
                let mut written = written.lock().unwrap();
                written.push(object.clone());
                object["metadata"]["resourceVersion"] = json!(format!("{}0", written.len()));
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
    watch.sink.init(&WatchScope::Cluster);
    for object in objects {
        let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
        watch.sink.apply(&WatchScope::Cluster, &projected);
    }
    watch.sink.init_done(&WatchScope::Cluster);
}

/// A manager with an owner `ClusterRole`, no bindings and every kind discovered; its validating configuration is
/// `validator`.
fn manager(
    operator: &Operator,
    trust: SharedTrust,
    written: &Arc<Mutex<Vec<Value>>>,
    validator: &[Value],
) -> WebhookConfigManager {
    let plan = WebhookConfigSettings {
        release: "asya".to_owned(),
        namespace: "asya-system".to_owned(),
        endpoint: Endpoint::Url("https://webhook:1".to_owned()),
        replicas: None,
        propagation_delay: Duration::from_secs(30),
    };
    let manager = WebhookConfigManager::new(
        plan,
        trust,
        server(written),
        Arc::clone(&operator.context),
        operator.queue.clone(),
        operator.tasks.clone(),
    );
    let metrics = &operator.context.metrics;
    let owner_role = json!({"metadata": metadata("asya-webhook-anchor", 1)});
    list(&manager.owner_roles.watch(metrics), &[owner_role]);
    list(&manager.validating.watch(metrics), validator);
    list(&manager.mutating.watch(metrics), &[]);
    list(&manager.facts.watch(metrics), &[]);
    // Facts are published only once every kind has been discovered.
    for GroupKind { group, kind } in known_kinds() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let kinds = &operator.context.bindings.kinds;
        kinds.serve(group, kind, resource);
    }
    manager
}

fn metadata(name: &str, version: u32) -> Value {
    json!({"name": name, "uid": name, "resourceVersion": version.to_string()})
}

/// A trusted CA, and its fingerprints.
fn trusted() -> (SharedTrust, Vec<String>) {
    let names = vec!["asya-webhook.asya-system.svc".to_owned()];
    let ca = Ca::new(&issuer::Settings::with_defaults(names), Timestamp::now()).unwrap();
    let bundle = CaBundle::read(ca.certificate.pem().as_bytes());
    let fingerprints = bundle.fingerprints().map(|ca| ca.to_string()).collect();
    let trust = SharedTrust::default();
    trust.set_desired(bundle);
    (trust, fingerprints)
}

fn kinds_of(written: &Mutex<Vec<Value>>) -> Vec<String> {
    let mut written = written.lock().unwrap();
    let kinds = written.drain(..);
    kinds
        .map(|object| object["kind"].as_str().unwrap().to_owned())
        .collect()
}

/// ADM-25
#[tokio::test(start_paused = true)]
async fn trusted_cas_are_published_after_a_corrupted_entry_is_restored() {
    let (written, operator, (trust, expected)) = (Arc::default(), operator(), trusted());
    let corrupted = json!({
        "metadata": metadata("asya-validator", 1),
        "webhooks": [{
            "name": "actors.asya.sh", "clientConfig": {"caBundle": "c3BvaWxlZA=="},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    let mut manager = manager(&operator, trust, &written, &[corrupted]);
    manager.try_reconcile().await.unwrap();
    let published = written.lock().unwrap()[1]["data"].to_string();
    assert_eq!(
        kinds_of(&written),
        ["ValidatingWebhookConfiguration", "ConfigMap"]
    );
    assert!(
        expected.iter().all(|ca| published.contains(ca)),
        "{published}"
    );
}

/// ADM-7, CFG-9
#[tokio::test(start_paused = true)]
async fn facts_that_were_deleted_or_edited_are_published_again() {
    let (written, operator, (trust, _)) = (Arc::default(), operator(), trusted());
    let mut manager = manager(&operator, trust, &written, &[]);
    manager.try_reconcile().await.unwrap();
    let published = written.lock().unwrap().last().cloned().unwrap();
    assert_eq!(kinds_of(&written).last().unwrap(), "ConfigMap");
    manager.try_reconcile().await.unwrap();
    assert!(kinds_of(&written).is_empty(), "no writes at rest");

    let sink = manager.facts.watch(&operator.context.metrics).sink;
    let observed = |version: u32, facts: &str, owners: &Value| {
        let mut metadata = metadata("asya-webhook-facts", version);
        metadata["uid"] = json!("uid");
        metadata["namespace"] = json!("asya-system");
        metadata["ownerReferences"] = owners.clone();
        let object = json!({"metadata": metadata, "data": {"facts.json": facts, "note": "of another client"}});
        let observed: Projected<WebhookFactsRecord> =
            serde_json::from_str(&object.to_string()).unwrap();
        observed
    };
    let owners = &published["metadata"]["ownerReferences"];
    let facts = published["data"]["facts.json"].as_str().unwrap();
    let changed = sink.delete(&WatchScope::Cluster, &observed(100, facts, owners));
    assert_eq!(changed, [Enqueue::AllActors], "the deletion is observed");
    manager.try_reconcile().await.unwrap();
    assert_eq!(kinds_of(&written), ["ConfigMap"], "deleted");
    sink.apply(&WatchScope::Cluster, &observed(200, facts, owners));
    manager.try_reconcile().await.unwrap();
    assert!(
        kinds_of(&written).is_empty(),
        "entries of others are no drift"
    );
    sink.apply(&WatchScope::Cluster, &observed(300, "{}", owners));
    manager.try_reconcile().await.unwrap();
    assert_eq!(kinds_of(&written), ["ConfigMap"], "edited");
    sink.apply(&WatchScope::Cluster, &observed(400, facts, &json!([])));
    manager.try_reconcile().await.unwrap();
    assert_eq!(kinds_of(&written), ["ConfigMap"], "without its owner");
}

/// CFG-9, ADM-24
#[tokio::test(start_paused = true)]
async fn facts_that_another_client_keeps_editing_are_restored_at_increasing_intervals() {
    let (written, operator, (trust, _)) = (Arc::default(), operator(), trusted());
    let mut manager = manager(&operator, trust, &written, &[]);
    manager.try_reconcile().await.unwrap();
    kinds_of(&written);
    let sink = manager.facts.watch(&operator.context.metrics).sink;
    let end = Instant::now() + Duration::from_hours(1);
    let mut version = 1000;
    while Instant::now() < end {
        version += 1;
        let mut metadata = metadata("asya-webhook-facts", version);
        metadata["namespace"] = json!("asya-system");
        let edited = json!({"metadata": metadata, "data": {"facts.json": "{}"}}).to_string();
        sink.apply(
            &WatchScope::Cluster,
            &serde_json::from_str(&edited).unwrap(),
        );
        let wait = manager.try_reconcile().await.unwrap();
        tokio::time::sleep(wait.min(Duration::from_secs(10))).await;
    }
    let writes = kinds_of(&written).len();
    assert!((10..=25).contains(&writes), "{writes}");
}

/// CFG-7 (f)
#[tokio::test(start_paused = true)]
async fn object_that_cannot_be_written_does_not_keep_the_others_from_being_written() {
    let (written, operator, (trust, _)) = (Arc::default(), operator(), trusted());
    let manager = manager(&operator, trust, &written, &[]);
    let object = |number: usize, entries: &[&str]| {
        let name = match number {
            1 => "asya-injector".to_owned(),
            _ => format!("asya-injector-{number}"),
        };
        let entry = |name: &&str| {
            json!({
                "name": name, "clientConfig": {}, "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            })
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let mut object = json!({"metadata": metadata(&name, 1), "webhooks": entries});
        object["kind"] = json!("MutatingWebhookConfiguration");
        object
    };
    let sink = manager.mutating.watch(&operator.context.metrics).sink;
    for existing in [object(4, &["moves.asya.sh"]), object(5, &["e.asya.sh"])] {
        sink.apply(
            &WatchScope::Cluster,
            &serde_json::from_str(&existing.to_string()).unwrap(),
        );
    }
    let desired = [
        object(1, &["a.asya.sh"]),
        object(3, &["c.asya.sh", "moves.asya.sh"]),
        object(4, &["d.asya.sh"]),
        object(5, &["f.asya.sh"]),
    ];
    let desired = desired.map(|object| serde_json::from_value(object).unwrap());
    let mut applied = ApplySummary::default();
    manager.apply_mutating(desired.into(), &mut applied).await;
    let names = written.lock().unwrap().clone();
    let names: Vec<_> = names
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    // An entry that moves from the fourth to the third object stays until the third has it.
    assert_eq!(names, ["asya-injector", "asya-injector-5"]);
    let [refused, left] = &applied.failures[..] else {
        panic!("{:?}", applied.failures);
    };
    assert!(refused.contains(REFUSED), "{refused}");
    assert!(left.contains("asya-injector-4"), "{left}");
}

/// CFG-12: its list may have failed once, or for good.
#[tokio::test(start_paused = true)]
async fn webhook_is_asked_as_before_about_a_namespace_that_cannot_be_listed() {
    keeps_entries_of(Store::list_failed).await;
}

/// CFG-12: a former leader watched it, or this one did.
#[tokio::test(start_paused = true)]
async fn webhook_is_asked_as_before_about_a_namespace_that_is_not_watched_any_more() {
    keeps_entries_of(|_, _| {}).await;
}

/// The namespace `lost` has entries, and its actors become unknown.
async fn keeps_entries_of(become_unknown: impl Fn(&Store<ActorRecord>, &WatchScope)) {
    let (written, operator, (trust, _)) = (Arc::default(), operator(), trusted());
    let mut manager = manager(&operator, trust, &written, &[]);
    let entry = |name: &str, namespaces: &[&str], policy: &str| {
        let key = "kubernetes.io/metadata.name";
        let terms = json!([{"key": key, "operator": "In", "values": namespaces}]);
        json!({
            "name": name, "clientConfig": {"url": "https://webhook:1/mutate/pods"},
            "failurePolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchExpressions": terms},
        })
    };
    let required = "r-1.required.inject.asya.sh";
    let existing = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": metadata("asya-injector", 1),
        "webhooks": [
            entry("generic.inject.asya.sh", &["gone", "lost"], "Ignore"),
            entry(required, &["lost"], "Fail"),
            entry("r-2.required.inject.asya.sh", &["gone"], "Fail"),
        ],
    });
    list(
        &manager.mutating.watch(&operator.context.metrics),
        slice::from_ref(&existing),
    );
    written.lock().unwrap().push(existing);
    let actors = &operator.context.stores.actors;
    let scope = |name: &str| WatchScope::Namespace(Arc::from(name));
    actors.list_completed(&scope("gone"));
    become_unknown(actors, &scope("lost"));
    manager.try_reconcile().await.unwrap();
    let entries = || {
        let written = written.lock().unwrap();
        let is_mutating = |it: &&Value| it["kind"] == "MutatingWebhookConfiguration";
        let newest = written.iter().rfind(is_mutating).cloned().unwrap();
        newest["webhooks"].as_array().unwrap().clone()
    };
    let kept = entries();
    let [shared, own] = &kept[..] else {
        panic!("{kept:#?}")
    };
    let namespaces = |it: &Value| it["namespaceSelector"]["matchExpressions"][0]["values"].clone();
    assert_eq!(namespaces(shared), json!(["lost"]));
    assert_eq!(shared["failurePolicy"], "Ignore");
    assert_eq!(
        (&own["name"], &own["failurePolicy"]),
        (&json!(required), &json!("Fail"))
    );

    manager.try_reconcile().await.unwrap();
    assert_eq!(entries(), kept, "for as long as it cannot be listed");
    actors.list_completed(&scope("lost"));
    manager.try_reconcile().await.unwrap();
    assert_eq!(entries(), [json!(null); 0], "it has no bindings");

    actors.retain_scopes(&[scope("gone")].into());
    become_unknown(actors, &scope("lost"));
    manager.try_reconcile().await.unwrap();
    let none = [json!(null); 0];
    assert_eq!(entries(), none, "as before this failure, not the first one");
}
