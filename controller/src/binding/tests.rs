mod memory;
mod moments;

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

use super::index::{Place, What};
use super::kinds::Kind;
use super::objects::ObjectWatch;
use super::{Bindings, Found, MarkedPods};
use crate::app::binding_watches;
use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{
    ActorRecord, Enqueue, ForeignRecord, Key, PodRecord, Projected, Record, UninjectedPodRecord,
};

fn seen<R: Record>(object: &Value) -> Projected<R> {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn actor_of(kind: &str, key: &Key, target: &str, created: &str) -> Arc<ActorRecord> {
    let object = json!({
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "uid": &*key.name, "resourceVersion": "1", "creationTimestamp": created},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}},
    });
    seen::<ActorRecord>(&object).record
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
    seen(&json!({"metadata": {
        "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "labels": labels,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-abc"), "uid": "rs", "controller": true}],
    }}))
}

fn deployment(name: &str, version: u32) -> Projected<ForeignRecord> {
    seen(
        &json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()}}),
    )
}

/// BIND-45
#[test]
fn older_of_two_actors_owns_a_shared_target_until_deleted() {
    let bindings = Bindings::default();
    assert_eq!(bind(&bindings, &key("young"), "web", LATE), HashSet::new());
    assert_eq!(bindings.owner_before(&key("young")), None);
    assert_eq!(
        bind(&bindings, &key("old"), "web", EARLY),
        [key("young")].into()
    );
    assert_eq!(bindings.owner_before(&key("young")), Some(key("old")));
    assert_eq!(bindings.owner_before(&key("old")), None);
    bind(&bindings, &key("other"), "db", EARLY);
    assert_eq!(bindings.owner_before(&key("other")), None);
    let elsewhere = Key::new("elsewhere", "x");
    bind(&bindings, &elsewhere, "web", EARLY);
    assert_eq!(
        bindings.owner_before(&elsewhere),
        None,
        "another namespace's target"
    );
    assert_eq!(
        bind(&bindings, &key("old"), "web", EARLY),
        HashSet::new(),
        "nothing new"
    );
    assert_eq!(bindings.refresh(&key("old"), None), [key("young")].into());
    assert_eq!(bindings.owner_before(&key("young")), None);
}

/// BIND-60, BIND-61
#[test]
fn kind_is_watched_in_a_namespace_from_its_first_binding_to_its_last() {
    let bindings = Bindings::default();
    let places = bindings.places();
    let scopes = |kind: &str| -> Vec<Scope> {
        let all = places.borrow();
        let of_kind = |place: &&Place| match &place.what {
            What::Pods => kind == "Pod",
            What::Constraints => kind == "ResourceQuota",
            What::Objects(known) => known.names().kind == kind,
        };
        all.iter()
            .filter(of_kind)
            .map(|place| place.scope.clone())
            .collect()
    };
    assert!(places.borrow().is_empty());
    let namespace = |n: usize| Key::new(&format!("n{n:02}"), "a");
    bind(&bindings, &namespace(0), "web", EARLY);
    let first: Scope = Some("n00".into());
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
        (vec![None], vec![None])
    );
    (0..51).for_each(|n| drop(bindings.refresh(&namespace(n), None)));
    assert!(places.borrow().is_empty());
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
        bindings.refresh(&key("a"), Some(&seen::<ActorRecord>(actor).record));
        let places = bindings.places();
        let all = places.borrow();
        let objects = all.iter().filter_map(|place| match &place.what {
            What::Objects(kind) => Some(kind.to_string()),
            What::Pods | What::Constraints => None,
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
    let scope: Scope = Some("ns".into());
    let a = vec![Enqueue::Actor(key("a"))];
    WatchSink::<UninjectedPodRecord>::relisting(&bindings, &scope);
    let expected = bindings.index.target_of(&key("a"));
    assert!(expected.is_some());
    let convention = asya_shared::resolve::resolver("apps", "Deployment").convention("web");
    let of = || {
        bindings
            .pods
            .of(&"ns".into(), &convention)
            .map(|pods| pods.len())
    };
    assert_eq!(of(), None, "nobody has listed them");
    assert_eq!(
        bindings.show(&scope, &pod("ns", "p1", "web", &json!({}))),
        a
    );
    assert_eq!(
        bindings.show(&scope, &pod("ns", "p1", "web", &json!({}))),
        [],
        "the same again"
    );
    assert_eq!(
        bindings.show(&scope, &pod("ns", "p2", "unbound", &json!({}))),
        []
    );
    let mut all = WatchSink::<UninjectedPodRecord>::relisted(&bindings, &scope);
    all.sort_by_key(|it| format!("{it:?}"));
    assert_eq!(
        all,
        [Enqueue::Actor(key("a")), Enqueue::Actor(key("b"))],
        "now pods are known"
    );
    assert_eq!(of(), Some(1));
    let labelled = pod("ns", "p1", "web", &json!({"asya.sh/inject": "false"}));
    assert_eq!(bindings.show(&scope, &labelled), a);
    WatchSink::<UninjectedPodRecord>::relisting(&bindings, &scope);
    assert_eq!(
        WatchSink::<UninjectedPodRecord>::relisted(&bindings, &scope),
        a,
        "the pod is gone"
    );
    assert_eq!(of(), Some(0));
    let last = pod("ns", "p3", "web", &json!({}));
    bindings.show(&scope, &last);
    assert_eq!(bindings.removed(&scope, &last), a);
    bindings.pods.forget(&scope);
    assert_eq!(of(), None);
}

/// The first actor was deleted with `asya.sh/skip-unbind`, or its label was copied (SAFE-18).
#[test]
fn target_pod_labelled_for_another_actor_enqueues_both() {
    let (bindings, store) = (Arc::new(Bindings::default()), Arc::default());
    let pods = MarkedPods::new(&store, &bindings);
    let (a, b, scope) = (key("a"), key("b"), None);
    bind(&bindings, &b, "web", EARLY);
    let expected = asya_shared::resolve::resolver("apps", "Deployment").convention("web");
    bindings.subscribe_pods(&b, &expected);
    let pod = |name: &str, extra: &Value| -> Projected<PodRecord> {
        let mut metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "labels": {"pod-template-hash": "abc", "asya.sh/asya": "a"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs", "controller": true}],
        });
        for (key, value) in extra.as_object().unwrap() {
            let part = metadata[key].as_object_mut();
            match part {
                Some(part) => part.extend(value.as_object().unwrap().clone()),
                None => metadata[key] = value.clone(),
            }
        }
        seen(&json!({"metadata": metadata}))
    };
    let of = || {
        bindings
            .marked
            .of(&b.namespace, &expected)
            .map(|all| all.len())
    };
    assert_eq!(of(), None, "nobody has listed them");
    pods.relisting(&scope);
    let both = [&a, &b].map(|it| Enqueue::Actor(it.clone()));
    let marked = json!({"annotations": {"asya.sh/injected-by": "gone"}});
    assert_eq!(pods.show(&scope, &pod("marked", &marked)), both);
    assert_eq!(pods.show(&scope, &pod("copied", &json!({}))), both);
    let own = json!({"labels": {"asya.sh/workload": "deployment"}});
    assert_eq!(pods.show(&scope, &pod("own", &own)), both[..1]);
    pods.relisted(&scope);
    assert_eq!(of(), Some(2));
    assert_eq!(pods.removed(&scope, &pod("copied", &json!({}))), both);
    assert_eq!(of(), Some(1));
    bindings
        .marked
        .forget_all_but(&std::collections::BTreeSet::new());
    assert_eq!(of(), None);
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

/// API server with Deployment `web` that counts the reads of it.
fn server(asked: &Arc<AtomicUsize>, version: &Arc<Mutex<Option<u32>>>) -> Client {
    let (asked, version) = (Arc::clone(asked), Arc::clone(version));
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let of_web = || {
            asked.fetch_add(1, Ordering::Relaxed);
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
    let (asked, version) = (Arc::default(), Arc::new(Mutex::new(None)));
    let client = server(&asked, &version);
    let bindings = Arc::new(Bindings::default());
    bind(&bindings, &key("a"), "web", EARLY);
    let target = bindings.target_of(&key("a")).unwrap();
    let read = async || bindings.read(&client, &target).await.unwrap();
    assert!(
        matches!(read().await, Found::NotYet),
        "its kind is not known"
    );
    let deployments = Kind::from(GroupKind {
        group: "apps",
        kind: "Deployment",
    });
    let mut standing = bindings.kinds.subscribe(&deployments);
    tokio::select! {
        () = bindings.kinds.follow(&client, |_| {}) => {}
        known = standing.changed() => known.unwrap(),
    }
    let watch = ObjectWatch::new(&bindings, &target.kind);
    let scope: Scope = Some("ns".into());
    let a = vec![Enqueue::Actor(key("a"))];
    let calls = || asked.load(Ordering::Relaxed);

    assert!(matches!(read().await, Found::Absent));
    assert!(matches!(read().await, Found::Absent));
    assert_eq!(calls(), 1, "an absent target is not asked for again");
    assert_eq!(watch.show(&scope, &deployment("unbound", 1)), []);

    *version.lock().unwrap() = Some(7);
    assert_eq!(watch.show(&scope, &deployment("web", 7)), a);
    let Found::Read(reading) = read().await else {
        panic!("it is there")
    };
    assert_eq!((reading.replicas, &*reading.uid), (Some(3), "web"));
    read().await;
    assert_eq!(calls(), 2);
    assert_eq!(
        watch.show(&scope, &deployment("web", 7)),
        [],
        "as it was read"
    );
    assert_eq!(watch.show(&scope, &deployment("web", 8)), a);
    read().await;
    assert_eq!(calls(), 3);

    watch.relisting(&scope);
    let mut gone = watch.relisted(&scope);
    gone.dedup();
    assert_eq!(gone, a, "the list does not show it");
    assert!(matches!(read().await, Found::Absent));
    assert_eq!(calls(), 3);
    assert_eq!(
        watch.removed(&scope, &deployment("web", 9)),
        [],
        "that is known"
    );
    bindings.refresh(&key("a"), None);
    assert_eq!(
        watch.show(&scope, &deployment("web", 10)),
        [],
        "nobody binds it any more"
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
    seen(&object)
}

/// RES-2, BIND-60
#[test]
fn dependents_of_a_target_enqueue_its_actor_and_ownerless_objects_are_dropped() {
    let bindings = Arc::new(Bindings::default());
    let actor = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "name": "phi"}},
    });
    bindings.refresh(&key("a"), Some(&seen::<ActorRecord>(&actor).record));
    let sets = Kind::from(GroupKind {
        group: "apps",
        kind: "StatefulSet",
    });
    let watch = ObjectWatch::new(&bindings, &sets);
    let scope: Scope = Some("ns".into());
    let a = vec![Enqueue::Actor(key("a"))];
    bindings.register_target(&key("a"), vec!["phi".into()]);
    let show = |name, generation, version, owner| {
        watch.show(&scope, &stateful_set(name, generation, version, owner))
    };
    assert_eq!(show("unbound", 1, 1, None), []);
    assert_eq!(show("other", 1, 2, Some("other")), []);
    assert_eq!(show("phi-set", 1, 3, Some("phi")), a);
    assert_eq!(show("phi-set", 1, 4, Some("phi")), [], "status alone");
    assert_eq!(show("phi-set", 2, 5, Some("phi")), a);
    assert_eq!(bindings.tree.len(), 2);
    let below = bindings.tree.below("phi", &[sets]);
    assert_eq!(
        below.iter().map(|it| &*it.key.name).collect::<Vec<_>>(),
        ["phi-set"]
    );
    assert_eq!(
        watch.removed(&scope, &stateful_set("phi-set", 2, 6, Some("phi"))),
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
    assert_eq!(bindings.owner_before(&key("young")), None);
    bindings.register_target(&key("old"), vec!["web".into(), "set".into()]);
    assert_eq!(bindings.owner_before(&key("young")), Some(key("old")));
    assert_eq!(bindings.owner_before(&key("old")), None);
    let old = actor_of("Deployment", &key("old"), "web", EARLY);
    assert_eq!(
        bindings.refresh(&key("old"), Some(&old)),
        [key("young")].into(),
        "the other hears of it"
    );
    assert_eq!(bindings.refresh(&key("old"), None), [key("young")].into());
    assert_eq!(bindings.owner_before(&key("young")), None);
}
