use std::sync::Arc;
use std::sync::Mutex;

use asya_shared::resolve::GroupKind;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::{Kind, KindAvailability, Kinds};
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{CrdNameRecord, Projected};

/// State of `Workspace` on a server that serves no other kind.
#[derive(Clone, Copy, PartialEq)]
enum Workspaces {
    Unknown,
    Forbidden,
    Served,
    /// Its API is down.
    Failing,
}

fn server(state: &Arc<Mutex<Workspaces>>) -> Client {
    let state = Arc::clone(state);
    let service = tower::service_fn(move |request: Request<Body>| {
        let state = *state.lock().unwrap();
        let known = state != Workspaces::Unknown;
        let (status, body) = match request.uri().path() {
            "/apis/kaito.sh" if state == Workspaces::Failing => {
                (503, failure(503, "ServiceUnavailable"))
            }
            "/apis/kaito.sh" if known => (
                200,
                json!({"name": "kaito.sh", "preferredVersion": {"version": "v1beta1", "groupVersion": "kaito.sh/v1beta1"}, "versions": [
                    {"version": "v1", "groupVersion": "kaito.sh/v1"},
                    {"version": "v1beta1", "groupVersion": "kaito.sh/v1beta1"},
                ]}),
            ),
            "/apis/kaito.sh/v1beta1" => (
                200,
                json!({"groupVersion": "kaito.sh/v1beta1", "resources": [
                    {"name": "workspaces/status", "kind": "Workspace", "namespaced": true, "singularName": "", "verbs": []},
                    {"name": "workspaces", "kind": "Workspace", "namespaced": true, "singularName": "", "verbs": []},
                ]}),
            ),
            "/apis/kaito.sh/v1" => (200, json!({"groupVersion": "kaito.sh/v1", "resources": []})),
            "/apis/kaito.sh/v1beta1/workspaces" if state == Workspaces::Served => {
                (200, json!({"metadata": {}, "items": []}))
            }
            "/apis/kaito.sh/v1beta1/workspaces" => (403, failure(403, "Forbidden")),
            _ => (404, Value::Null),
        };
        // A real API server returns plain text for an unknown path.
        let text = match status {
            404 => "404 page not found".to_owned(),
            _ => body.to_string(),
        };
        let mut response = Response::new(Body::from(text.into_bytes()));
        *response.status_mut() = status.try_into().unwrap();
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Client::new(service, "default")
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"status": "Failure", "code": code, "message": "no", "reason": reason})
}

fn crd(name: &str, version: u32) -> Projected<CrdNameRecord> {
    let crd =
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}});
    serde_json::from_str(&crd.to_string()).unwrap()
}

fn workspace() -> Kind {
    Kind::from(GroupKind {
        group: "kaito.sh",
        kind: "Workspace",
    })
}

/// RES-1
#[tokio::test(start_paused = true)]
async fn subscribing_to_a_new_kind_triggers_its_discovery() {
    let client = server(&Arc::new(Mutex::new(Workspaces::Unknown)));
    let kinds = Arc::new(Kinds::default());
    let follower = Arc::clone(&kinds);
    let task = tokio::spawn(async move { follower.follow(&client, |_| {}).await });
    // By now all kinds that are tracked from the start have been discovered.
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let thing = Kind::from(GroupKind {
        group: "example.org",
        kind: "Thing",
    });
    let mut availability = kinds.subscribe(&thing);
    kinds.track(&thing);
    let discovered =
        tokio::time::timeout(std::time::Duration::from_mins(1), availability.changed());
    discovered.await.unwrap().unwrap();
    assert_eq!(kinds.availability(&thing), KindAvailability::NotInstalled);
    task.abort();
}

/// ADM-7: the webhook waits for what is published with the kinds.
#[tokio::test(start_paused = true)]
async fn kind_whose_api_is_down_holds_up_nothing_that_is_published() {
    let client = server(&Arc::new(Mutex::new(Workspaces::Failing)));
    let kinds = Arc::new(Kinds::default());
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let follower = Arc::clone(&kinds);
    let task = tokio::spawn(async move {
        let report = |kind: &Kind| drop(sender.send(kind.clone()));
        follower.follow(&client, report).await;
    });
    while changes.recv().await.unwrap() != workspace() {}
    assert_eq!(kinds.availability(&workspace()), KindAvailability::Unknown);
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let unreadable = kinds.unreadable().unwrap();
    assert!(unreadable.iter().all(|kind| kind.kind != "Workspace") && !unreadable.is_empty());
    let is_told = |kind: &Kind| *kind == workspace();
    let told = std::iter::from_fn(|| changes.try_recv().ok()).any(|kind| is_told(&kind));
    assert!(!told, "once");
    task.abort();
}

/// RES-1, RES-6, ADM-7
#[tokio::test(start_paused = true)]
async fn kind_is_discovered_promptly_in_the_preferred_version() {
    let state = Arc::new(Mutex::new(Workspaces::Unknown));
    let client = server(&state);
    let kinds = Arc::new(Kinds::default());
    assert_eq!(kinds.unreadable(), None, "discovery has not run");
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let follower = Arc::clone(&kinds);
    let task = tokio::spawn(async move {
        let report = |kind: &Kind| drop(sender.send((kind.clone(), tokio::time::Instant::now())));
        follower.follow(&client, report).await;
    });
    let mut next_change = async || {
        loop {
            let (kind, at) = changes.recv().await.unwrap();
            if kind == workspace() {
                return at;
            }
        }
    };
    next_change().await;
    assert_eq!(
        kinds.availability(&workspace()),
        KindAvailability::NotInstalled
    );
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    let unreadable = kinds.unreadable().unwrap();
    assert!(
        unreadable.iter().all(|kind| kind.missing_rule.is_none()) && unreadable.len() > 9,
        "{unreadable:?}"
    );

    // The CRD is observed before discovery lists its kind.
    kinds.apply(&WatchScope::Cluster, &crd("workspaces.kaito.sh", 1));
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let installed = tokio::time::Instant::now();
    *state.lock().unwrap() = Workspaces::Forbidden;
    assert!((next_change().await - installed).as_secs() < 2);
    let rule = "- apiGroups: [kaito.sh]\n  resources: [workspaces]\n  verbs: [get, list, watch]\n";
    assert_eq!(
        kinds.availability(&workspace()),
        KindAvailability::Forbidden(rule.into())
    );
    let has_rule = |kind: &super::UnreadableKind| kind.missing_rule.as_deref() == Some(rule);
    assert!(kinds.unreadable().unwrap().iter().any(has_rule));

    tokio::time::sleep(std::time::Duration::from_secs(16)).await;
    let granted = tokio::time::Instant::now();
    *state.lock().unwrap() = Workspaces::Served;
    let waited = (next_change().await - granted).as_secs();
    assert!((20..=60).contains(&waited), "{waited} s");
    let KindAvailability::Served(resource) = kinds.availability(&workspace()) else {
        panic!("it is not served")
    };
    assert_eq!(
        (&*resource.version, &*resource.plural),
        ("v1beta1", "workspaces")
    );

    // Read access is revoked before discovery drops the kind.
    *state.lock().unwrap() = Workspaces::Forbidden;
    kinds.delete(&WatchScope::Cluster, &crd("workspaces.kaito.sh", 2));
    next_change().await;
    let removed = tokio::time::Instant::now();
    *state.lock().unwrap() = Workspaces::Unknown;
    assert!((next_change().await - removed).as_secs() < 2);
    assert_eq!(
        kinds.availability(&workspace()),
        KindAvailability::NotInstalled
    );
    task.abort();
}
