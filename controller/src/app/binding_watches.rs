//! Watches for bindings: a kind is watched in a namespace while at least one binding needs it (BIND-60 to BIND-62).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;

use super::operator::Operator;
use crate::binding::kinds::Kind;
use crate::binding::needed_watches::{NeededWatch, WatchSubject};
use crate::binding::objects::ObjectWatch;
use crate::binding::{Bindings, KindAvailability};
use crate::cluster::watch::{Selector, Watch, WatchSink};
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    CrdNameRecord, CreationFailureRecord, ForeignRecord, LimitRangeRecord, NamespaceRecord,
    Projected, ProjectedForeign, QuotaRecord, Record, UninjectedPodRecord,
};
use crate::telemetry::health::Readiness;

/// Pods that the watch of actors' pods does not cover. A finished pod (evicted, or terminated with its node) stays
/// listed until it is garbage collected, but serves nothing and is not replaced: it must not count as a pod without the
/// sidecar. Metadata do not include the phase, so the API server filters (SAFE-10).
pub(crate) fn uninjected_pods() -> Selector {
    Selector {
        labels: Some("!asya.sh/asya".into()),
        fields: Some("status.phase!=Succeeded,status.phase!=Failed".into()),
    }
}

/// Runs the watches that bindings need, forever.
pub async fn follow(operator: Operator, client: Client) {
    let bindings = Arc::clone(&operator.context.bindings);
    let mut required = bindings.required_watches();
    let mut running: BTreeMap<NeededWatch, JoinSet<()>> = BTreeMap::new();
    loop {
        let desired = required.borrow_and_update().clone();
        // Start new watches before stopping old ones, because their objects may overlap.
        for watch in &desired {
            if !running.contains_key(watch) {
                let task = start(&operator, &client, watch);
                running.insert(watch.clone(), task);
            }
        }
        running.retain(|watch, _| {
            let is_required = desired.contains(watch);
            if !is_required {
                bindings.forget(watch);
            }
            is_required
        });
        if required.changed().await.is_err() {
            return;
        }
    }
}

/// Starts the required watches; dropping the set stops them.
fn start(operator: &Operator, client: &Client, required: &NeededWatch) -> JoinSet<()> {
    let bindings = &operator.context.bindings;
    let mut task = JoinSet::new();
    match &required.subject {
        WatchSubject::Pods => {
            let api = match &required.scope {
                WatchScope::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
                WatchScope::Cluster => Api::all(client.clone()),
            };
            let store: Arc<dyn WatchSink<UninjectedPodRecord>> = bindings.clone();
            let watch: Watch<UninjectedPodRecord> =
                watch(operator, &required.scope, api, store, uninjected_pods());
            let operator = operator.clone();
            let tasks = operator.tasks.clone();
            let run = watch.run(move |enqueue| operator.on_change(enqueue));
            task.spawn(tasks.run_forever("watch of uninjected pods", run));
        }
        // Without the webhook no pod gets a sidecar, and RBAC does not allow listing these.
        WatchSubject::Constraints if !operator.context.installation.webhook => {}
        WatchSubject::Constraints => constraints(operator, client, &required.scope, &mut task),
        WatchSubject::Objects(kind) => {
            let operator = operator.clone();
            let client = client.clone();
            let tasks = operator.tasks.clone();
            let run = objects(operator, client, kind.clone(), required.scope.clone());
            task.spawn(tasks.run_forever("watch of targets", run));
        }
    }
    task
}

/// Warnings about everything except pods. A field selector can match one reason only, and controllers use several for a
/// pod that they cannot create.
const CREATION_FAILURES: &str = "type=Warning,involvedObject.kind!=Pod";

/// Watches the constraints that the API server enforces on pods, and the Events about pods that it rejected.
fn constraints(operator: &Operator, client: &Client, scope: &WatchScope, task: &mut JoinSet<()>) {
    let namespace = Selector {
        fields: scope
            .namespace()
            .map(|name| format!("metadata.name={name}").into()),
        ..Selector::default()
    };
    let failures = Selector {
        fields: Some(CREATION_FAILURES.into()),
        ..Selector::default()
    };
    let unrestricted = Selector::default;
    task.spawn(constraint::<QuotaRecord>(
        operator,
        api(client, scope),
        scope,
        unrestricted(),
    ));
    task.spawn(constraint::<LimitRangeRecord>(
        operator,
        api(client, scope),
        scope,
        unrestricted(),
    ));
    let all = Api::all(client.clone());
    task.spawn(constraint::<NamespaceRecord>(
        operator, all, scope, namespace,
    ));
    task.spawn(constraint::<CreationFailureRecord>(
        operator,
        api(client, scope),
        scope,
        failures,
    ));
}

fn constraint<R>(
    operator: &Operator,
    api: Api<Projected<R>>,
    scope: &WatchScope,
    selector: Selector,
) -> impl Future<Output = ()> + Send + use<R>
where
    R: Record,
    Bindings: WatchSink<R>,
{
    let store: Arc<dyn WatchSink<R>> = operator.context.bindings.clone();
    let watch: Watch<R> = watch(operator, scope, api, store, selector);
    let operator = operator.clone();
    let tasks = operator.tasks.clone();
    tasks.run_forever(
        "watch of constraints",
        watch.run(move |enqueue| operator.on_change(enqueue)),
    )
}

fn api<R>(client: &Client, scope: &WatchScope) -> Api<Projected<R>>
where
    R: Record,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    match scope {
        WatchScope::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        WatchScope::Cluster => Api::all(client.clone()),
    }
}

/// Watches a kind for as long as it is served, in the version that discovery found.
async fn objects(operator: Operator, client: Client, kind: Kind, scope: WatchScope) {
    let bindings = &operator.context.bindings;
    let mut availability = bindings.kinds.subscribe(&kind);
    let store = Arc::new(ObjectWatch::new(bindings, &kind));
    loop {
        let current = availability.borrow_and_update().clone();
        let KindAvailability::Served(resource) = current else {
            let affected = store.kind_removed(&scope);
            for enqueue in affected {
                operator.on_change(enqueue);
            }
            if availability.changed().await.is_err() {
                return;
            }
            continue;
        };
        let api = match &scope {
            WatchScope::Namespace(namespace) => {
                Api::namespaced_with(client.clone(), namespace, &*resource)
            }
            WatchScope::Cluster => Api::all_with(client.clone(), &*resource),
        };
        let watch: Watch<ForeignRecord, ProjectedForeign> =
            watch(&operator, &scope, api, store.clone(), Selector::default());
        tokio::select! {
            // In a fixed order, so that a simulation can be repeated.
            biased;
            () = watch.run(|enqueue| operator.on_bound_object_change(enqueue)) => {}
            changed = availability.changed() => if changed.is_err() {
                return;
            }
        }
    }
}

/// Follows the CRDs, and discovery of the kinds that bindings use, forever.
pub async fn follow_kinds(operator: Operator, client: Client) {
    let bindings = Arc::clone(&operator.context.bindings);
    let store = Arc::clone(&bindings.kinds);
    let crds: Watch<CrdNameRecord> = watch(
        &operator,
        &WatchScope::Cluster,
        Api::all(client.clone()),
        store,
        Selector::default(),
    );
    let changed = |kind: &Kind| {
        for enqueue in bindings.kind_changed(kind) {
            operator.on_change(enqueue);
        }
    };
    tokio::select! {
        // In a fixed order, so that a simulation can be repeated.
        biased;
        () = crds.run(|_| {}) => {}
        () = bindings.kinds.follow(&client, changed) => {}
    }
}

fn watch<R, S>(
    operator: &Operator,
    scope: &WatchScope,
    api: Api<S>,
    store: Arc<dyn WatchSink<R>>,
    selector: Selector,
) -> Watch<R, S> {
    Watch {
        api,
        scope: scope.clone(),
        selector,
        served: None,
        sink: store,
        // A separate readiness: bindings come and go, so the controller's readiness must not depend on them.
        check: Readiness::default().check("binding"),
        metrics: Arc::clone(&operator.context.metrics),
    }
}
