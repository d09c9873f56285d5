mod memory;
mod moments;
mod pod_names;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use asya_shared::names::label;
use asya_shared::resolve::GroupKind;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::kinds::Kind;
use super::needed_watches::{NeededWatch, WatchSubject};
use super::objects::ObjectWatch;
use super::{Bindings, LabelledPods, TargetState};
use crate::app::binding_watches;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    ActorRecord, Enqueue, ForeignRecord, Key, PodRecord, Projected, Record, UninjectedPodRecord,
};

fn project<R: Record>(object: &Value) -> Projected<R> {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn actor_of(kind: &str, key: &Key, target: &str, created: &str) -> Arc<ActorRecord> {
    let object = json!({
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "uid": &*key.name, "resourceVersion": "1", "creationTimestamp": created},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}},
    });
    project::<ActorRecord>(&object).record
}

fn bind(bindings: &Bindings, key: &Key, target: &str, created: &str) -> HashSet<Key> {
    bindings.refresh(key, Some(&actor_of("Deployment", key, target, created)))
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-02T00:00:00Z";

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

/// A pod of a Deployment.
fn pod(
    namespace: &str,
    name: &str,
    deployment: &str,
    extra: &Value,
) -> Projected<UninjectedPodRecord> {
    let mut labels = json!({"pod-template-hash": "abc"});
    labels
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    project(&json!({"metadata": {
        "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "labels": labels,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-abc"), "uid": "rs", "controller": true}],
    }}))
}

fn deployment(name: &str, version: u32) -> Projected<ForeignRecord> {
    project(
        &json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()}}),
    )
}

/// BIND-45
#[test]
fn older_of_two_actors_owns_a_shared_target_until_deleted() {
    let bindings = Bindings::default();
    assert_eq!(bind(&bindings, &key("young"), "web", LATE), HashSet::new());
    assert_eq!(bindings.older_binding(&key("young")), None);
    assert_eq!(
        bind(&bindings, &key("old"), "web", EARLY),
        [key("young")].into()
    );
    assert_eq!(bindings.older_binding(&key("young")), Some(key("old")));
    assert_eq!(bindings.older_binding(&key("old")), None);
    bind(&bindings, &key("other"), "db", EARLY);
    assert_eq!(bindings.older_binding(&key("other")), None);
    let elsewhere = Key::new("elsewhere", "x");
    bind(&bindings, &elsewhere, "web", EARLY);
    assert_eq!(
        bindings.older_binding(&elsewhere),
        None,
        "another namespace's target"
    );
    assert_eq!(
        bind(&bindings, &key("old"), "web", EARLY),
        HashSet::new(),
        "unchanged"
    );
    assert_eq!(bindings.refresh(&key("old"), None), [key("young")].into());
    assert_eq!(bindings.older_binding(&key("young")), None);
}

/// BIND-60, BIND-61
#[test]
fn kind_is_watched_in_a_namespace_from_its_first_binding_to_its_last() {
    let bindings = Bindings::default();
    let watches = bindings.required_watches();
    let scopes = |kind: &str| -> Vec<WatchScope> {
        let all = watches.borrow();
        let is_of_kind = |watch: &&NeededWatch| match &watch.subject {
            WatchSubject::Pods => kind == "Pod",
            WatchSubject::Constraints => kind == "ResourceQuota",
            WatchSubject::Objects(known) => known.group_kind().kind == kind,
        };
        all.iter()
            .filter(is_of_kind)
            .map(|watch| watch.scope.clone())
            .collect()
    };
    assert!(watches.borrow().is_empty());
    let namespace = |n: usize| Key::new(&format!("n{n:02}"), "a");
    bind(&bindings, &namespace(0), "web", EARLY);
    let first = WatchScope::Namespace("n00".into());
    assert_eq!(
        (scopes("Pod"), scopes("Deployment")),
        (vec![first.clone()], vec![first.clone()])
    );
    let set = Key::new("n00", "b");
    bindings.refresh(&set, Some(&actor_of("StatefulSet", &set, "db", EARLY)));
    assert_eq!(scopes("StatefulSet"), vec![first]);
    bindings.refresh(&set, None);
    assert_eq!(scopes("StatefulSet"), vec![]);
    (1..50).for_each(|n| drop(bind(&bindings, &namespace(n), "web", EARLY)));
    assert_eq!(scopes("Pod").len(), 50);
    assert_eq!(scopes("ResourceQuota").len(), 50);
    bind(&bindings, &namespace(50), "web", EARLY);
    assert_eq!(
        (scopes("Pod"), scopes("Deployment")),
        (vec![WatchScope::Cluster], vec![WatchScope::Cluster])
    );
    (0..51).for_each(|n| drop(bindings.refresh(&namespace(n), None)));
    assert!(watches.borrow().is_empty());
}

/// BIND-61, RES-3
#[test]
fn kinds_between_a_target_and_its_workload_are_watched() {
    let bindings = Bindings::default();
    let mut actor = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "name": "phi"}},
    });
    let kinds = |actor: &Value| -> Vec<String> {
        bindings.refresh(&key("a"), Some(&project::<ActorRecord>(actor).record));
        let watches = bindings.required_watches();
        let all = watches.borrow();
        let objects = all.iter().filter_map(|watch| match &watch.subject {
            WatchSubject::Objects(kind) => Some(kind.to_string()),
            WatchSubject::Pods | WatchSubject::Constraints => None,
        });
        objects.collect()
    };
    assert_eq!(
        kinds(&actor),
        ["Deployment.apps", "StatefulSet.apps", "Workspace.kaito.sh"]
    );
    actor["metadata"]["uid"] = json!("b");
    actor["spec"]["workloadRef"] =
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "name": "it"});
    let unknown = kinds(&actor);
    assert!(
        unknown.contains(&"Thing.example.org".to_owned()),
        "{unknown:?}"
    );
    assert!(
        unknown.contains(&"ReplicaSet.apps".to_owned()),
        "{unknown:?}"
    );
    assert!(
        !unknown.contains(&"Workspace.kaito.sh".to_owned()),
        "{unknown:?}"
    );
}

/// BIND-5, BIND-62
#[test]
fn pod_enqueues_only_the_actor_that_binds_its_target() {
    let bindings = Bindings::default();
    bind(&bindings, &key("a"), "web", EARLY);
    bind(&bindings, &key("b"), "db", EARLY);
    let scope = WatchScope::Namespace("ns".into());
    let a = vec![Enqueue::Actor(key("a"))];
    WatchSink::<UninjectedPodRecord>::init(&bindings, &scope);
    let expected = bindings.index.target_of(&key("a"));
    assert!(expected.is_some());
    let unresolved = asya_shared::resolve::resolver("apps", "Deployment").unresolved_pods("web");
    let count = || {
        bindings
            .uninjected_pods
            .matching(&"ns".into(), &unresolved)
            .map(|pods| pods.len())
    };
    assert_eq!(count(), None, "nothing has been listed");
    assert_eq!(
        bindings.apply(&scope, &pod("ns", "p1", "web", &json!({}))),
        a
    );
    assert_eq!(
        bindings.apply(&scope, &pod("ns", "p1", "web", &json!({}))),
        [],
        "unchanged"
    );
    assert_eq!(
        bindings.apply(&scope, &pod("ns", "p2", "unbound", &json!({}))),
        []
    );
    let mut all = WatchSink::<UninjectedPodRecord>::init_done(&bindings, &scope);
    all.sort_by_key(|actor| format!("{actor:?}"));
    assert_eq!(
        all,
        [Enqueue::Actor(key("a")), Enqueue::Actor(key("b"))],
        "after the first list"
    );
    assert_eq!(count(), Some(1));
    let labelled = pod("ns", "p1", "web", &json!({"asya.sh/inject": "false"}));
    assert_eq!(bindings.apply(&scope, &labelled), a);
    WatchSink::<UninjectedPodRecord>::init(&bindings, &scope);
    assert_eq!(
        WatchSink::<UninjectedPodRecord>::init_done(&bindings, &scope),
        a,
        "the list does not return the pod"
    );
    assert_eq!(count(), Some(0));
    let last = pod("ns", "p3", "web", &json!({}));
    bindings.apply(&scope, &last);
    assert_eq!(bindings.delete(&scope, &last), a);
    bindings.uninjected_pods.forget(&scope);
    assert_eq!(count(), None);
}

/// The first actor was deleted with `asya.sh/skip-unbind`, or its label was copied (SAFE-18).
#[test]
fn target_pod_labelled_for_another_actor_enqueues_both() {
    let bindings = Arc::new(Bindings::default());
    let store = Arc::default();
    let pods = LabelledPods::new(&store, &bindings);
    let a = key("a");
    let b = key("b");
    let scope = WatchScope::Cluster;
    bind(&bindings, &b, "web", EARLY);
    let expected = asya_shared::resolve::resolver("apps", "Deployment").unresolved_pods("web");
    bindings.set_pod_match(&b, &expected);
    let pod = |name: &str, extra: &Value| -> Projected<PodRecord> {
        let mut metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "labels": {"pod-template-hash": "abc", "asya.sh/asya": "a"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs", "controller": true}],
        });
        for (key, value) in extra.as_object().unwrap() {
            let field = metadata[key].as_object_mut();
            match field {
                Some(field) => field.extend(value.as_object().unwrap().clone()),
                None => metadata[key] = value.clone(),
            }
        }
        project(&json!({"metadata": metadata}))
    };
    let count = || {
        bindings
            .labelled_pods
            .matching(&b.namespace, &expected)
            .map(|pods| pods.len())
    };
    assert_eq!(count(), None, "nothing has been listed");
    pods.init(&scope);
    let both = [&a, &b].map(|actor| Enqueue::Actor(actor.clone()));
    let injected = json!({"annotations": {"asya.sh/injected-by": "gone"}});
    assert_eq!(pods.apply(&scope, &pod("injected", &injected)), both);
    assert_eq!(pods.apply(&scope, &pod("copied", &json!({}))), both);
    let own = json!({"labels": {"asya.sh/workload": "deployment"}});
    assert_eq!(pods.apply(&scope, &pod("own", &own)), both[..1]);
    pods.init_done(&scope);
    assert_eq!(count(), Some(2));
    assert_eq!(pods.delete(&scope, &pod("copied", &json!({}))), both);
    assert_eq!(count(), Some(1));
    bindings
        .labelled_pods
        .forget_all_but(&std::collections::BTreeSet::new());
    assert_eq!(count(), None);
}

/// SAFE-10
#[test]
fn pod_watch_excludes_labelled_and_finished_pods() {
    let selector = binding_watches::uninjected_pods();
    assert_eq!(
        selector.labels.as_deref(),
        Some(&*format!("!{}", label::ASYA))
    );
    let finished = "status.phase!=Succeeded,status.phase!=Failed";
    assert_eq!(selector.fields.as_deref(), Some(finished));
}

/// API server with Deployment `web` that counts reads of it.
fn server(reads: &Arc<AtomicUsize>, version: &Arc<Mutex<Option<u32>>>) -> Client {
    let reads = Arc::clone(reads);
    let version = Arc::clone(version);
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let of_web = || {
            reads.fetch_add(1, Ordering::Relaxed);
            let version = (*version.lock().unwrap())?;
            Some(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "ns", "uid": "web", "resourceVersion": version.to_string()},
                "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            }))
        };
        let body = match &*path {
            "/apis/apps" => Some(json!({
                "name": "apps", "versions": [{"version": "v1", "groupVersion": "apps/v1"}],
            })),
            "/apis/apps/v1" => Some(json!({"groupVersion": "apps/v1", "resources": [
                {"name": "deployments", "kind": "Deployment", "namespaced": true, "singularName": "", "verbs": []},
            ]})),
            "/apis/apps/v1/deployments" => Some(json!({"metadata": {}, "items": []})),
            "/apis/apps/v1/namespaces/ns/deployments/web" => of_web(),
            _ => None,
        };
        let status = if body.is_some() { 200 } else { 404 };
        let none =
            json!({"status": "Failure", "code": 404, "message": "none", "reason": "NotFound"});
        let body = body.unwrap_or(none);
        let mut response = Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = status.try_into().unwrap();
        std::future::ready(Ok::<_, BoxError>(response))
    });
    Client::new(service, "default")
}

/// BIND-40, BIND-41, BIND-60, BIND-61
#[tokio::test]
async fn target_is_read_once_per_observed_change() {
    let reads = Arc::default();
    let version = Arc::new(Mutex::new(None));
    let client = server(&reads, &version);
    let bindings = Arc::new(Bindings::default());
    bind(&bindings, &key("a"), "web", EARLY);
    let target = bindings.target_of(&key("a")).unwrap();
    let read = async || bindings.read_target(&client, &target).await.unwrap();
    assert!(
        matches!(read().await, TargetState::NotSynced),
        "its kind has not been discovered"
    );
    let deployments = Kind::from(GroupKind {
        group: "apps",
        kind: "Deployment",
    });
    let mut availability = bindings.kinds.subscribe(&deployments);
    tokio::select! {
        () = bindings.kinds.follow(&client, |_| {}) => {}
        changed = availability.changed() => changed.unwrap(),
    }
    let watch = ObjectWatch::new(&bindings, &target.kind);
    let scope = WatchScope::Namespace("ns".into());
    let a = vec![Enqueue::Actor(key("a"))];
    let calls = || reads.load(Ordering::Relaxed);

    assert!(matches!(read().await, TargetState::NotFound));
    assert!(matches!(read().await, TargetState::NotFound));
    assert_eq!(calls(), 1, "an absent target is not read again");
    assert_eq!(watch.apply(&scope, &deployment("unbound", 1)), []);

    *version.lock().unwrap() = Some(7);
    assert_eq!(watch.apply(&scope, &deployment("web", 7)), a);
    let TargetState::Present(snapshot) = read().await else {
        panic!("it is not present")
    };
    assert_eq!((snapshot.replicas, &*snapshot.uid), (Some(3), "web"));
    read().await;
    assert_eq!(calls(), 2);
    assert_eq!(
        watch.apply(&scope, &deployment("web", 7)),
        [],
        "the version that was read"
    );
    assert_eq!(watch.apply(&scope, &deployment("web", 8)), a);
    read().await;
    assert_eq!(calls(), 3);

    watch.init(&scope);
    let mut affected = watch.init_done(&scope);
    affected.dedup();
    assert_eq!(affected, a, "the list does not return it");
    assert!(matches!(read().await, TargetState::NotFound));
    assert_eq!(calls(), 3);
    assert_eq!(
        watch.delete(&scope, &deployment("web", 9)),
        [],
        "its deletion is known"
    );
    bindings.refresh(&key("a"), None);
    assert_eq!(
        watch.apply(&scope, &deployment("web", 10)),
        [],
        "no actor binds it any more"
    );
}

/// A `StatefulSet` owned by a `Workspace`, or without an owner.
fn stateful_set(
    name: &str,
    generation: i64,
    version: u32,
    owner: Option<&str>,
) -> Projected<ForeignRecord> {
    let mut object = json!({"metadata": {
        "name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(), "generation": generation,
    }});
    if let Some(uid) = owner {
        object["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "name": uid, "uid": uid, "controller": true},
        ]);
    }
    project(&object)
}

/// RES-2, BIND-60
#[test]
fn dependents_of_a_target_enqueue_its_actor_and_ownerless_objects_are_dropped() {
    let bindings = Arc::new(Bindings::default());
    let actor = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "name": "phi"}},
    });
    bindings.refresh(&key("a"), Some(&project::<ActorRecord>(&actor).record));
    let sets = Kind::from(GroupKind {
        group: "apps",
        kind: "StatefulSet",
    });
    let watch = ObjectWatch::new(&bindings, &sets);
    let scope = WatchScope::Namespace("ns".into());
    let a = vec![Enqueue::Actor(key("a"))];
    bindings.register_target(&key("a"), vec!["phi".into()]);
    let apply = |name, generation, version, owner| {
        watch.apply(&scope, &stateful_set(name, generation, version, owner))
    };
    assert_eq!(apply("unbound", 1, 1, None), []);
    assert_eq!(apply("other", 1, 2, Some("other")), []);
    assert_eq!(apply("phi-set", 1, 3, Some("phi")), a);
    assert_eq!(
        apply("phi-set", 1, 4, Some("phi")),
        [],
        "only status has changed"
    );
    assert_eq!(apply("phi-set", 2, 5, Some("phi")), a);
    assert_eq!(bindings.tree.len(), 2);
    let descendants = bindings.tree.descendants("phi", &[sets]);
    assert_eq!(
        descendants
            .iter()
            .map(|object| &*object.key.name)
            .collect::<Vec<_>>(),
        ["phi-set"]
    );
    assert_eq!(
        watch.delete(&scope, &stateful_set("phi-set", 2, 6, Some("phi"))),
        a
    );
    assert_eq!(bindings.tree.len(), 1);
}

/// BIND-45
#[test]
fn older_of_two_actors_owns_the_pods_of_a_shared_workload() {
    let bindings = Bindings::default();
    bind(&bindings, &key("old"), "web", EARLY);
    bind(&bindings, &key("young"), "db", LATE);
    bindings.register_target(&key("young"), vec!["db".into(), "set".into()]);
    assert_eq!(bindings.older_binding(&key("young")), None);
    bindings.register_target(&key("old"), vec!["web".into(), "set".into()]);
    assert_eq!(bindings.older_binding(&key("young")), Some(key("old")));
    assert_eq!(bindings.older_binding(&key("old")), None);
    let old = actor_of("Deployment", &key("old"), "web", EARLY);
    assert_eq!(
        bindings.refresh(&key("old"), Some(&old)),
        [key("young")].into(),
        "the other actor is enqueued"
    );
    assert_eq!(bindings.refresh(&key("old"), None), [key("young")].into());
    assert_eq!(bindings.older_binding(&key("young")), None);
}
