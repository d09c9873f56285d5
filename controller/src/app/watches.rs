//! The watches that fill the stores, in the watched namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;

use asya_shared::names::label;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, Resource};
use tokio::task::JoinSet;

use super::binding_watches;
use super::operator::Operator;
use crate::binding::LabelledPods;
use crate::cluster::keda;
use crate::cluster::store::Store;
use crate::cluster::watch::{Selector, Watch, WatchSink};
use crate::cluster::watch_scope::WatchScope;
use crate::context::Context;
use crate::record::{
    CrdRecord, Enqueue, PodEventRecord, PodRecord, Record, StatefulSetFailureRecord,
};

/// Objects that belong to one actor.
const MANAGED_BY_SELECTOR: &str = "app.kubernetes.io/managed-by=asya-operator";
/// Objects shared by the actors of a namespace.
const SHARED: &str = "app.kubernetes.io/part-of=asya";

/// Warnings about volumes that cannot be mounted. A field selector can match one reason or exclude several, so exclude
/// the most frequent other reasons.
const POD_WARNINGS: &str = "involvedObject.kind=Pod,type=Warning,\
    reason!=BackOff,reason!=Failed,reason!=FailedCreatePodSandBox,\
    reason!=FailedScheduling,reason!=FailedToRetrieveImagePullSecret,reason!=Unhealthy";

/// Warnings about pods that a `StatefulSet` cannot create.
const SET_REJECTIONS: &str = "involvedObject.kind=StatefulSet,type=Warning,reason=FailedCreate";

/// The running watches: one per kind, either in each of some namespaces or cluster-wide. Dropping them stops them.
pub struct Watches {
    operator: Operator,
    client: Client,
    running: BTreeMap<WatchScope, JoinSet<()>>,
    keda: KedaCrdWatches,
    _of_bindings: JoinSet<()>,
}

/// Watches of KEDA's CRDs, which are cluster-scoped.
struct KedaCrdWatches {
    _running: JoinSet<()>,
    /// Completes once it is known whether KEDA is installed.
    discovered: Shared<BoxFuture<'static, ()>>,
}

impl Watches {
    /// Starts only the watches of KEDA's CRDs and those that follow the bindings.
    pub fn new(operator: Operator, client: Client) -> Self {
        let keda = KedaCrdWatches::start(&operator, &client);
        let mut binding_tasks = JoinSet::new();
        let tasks = &operator.tasks;
        let objects = binding_watches::follow(operator.clone(), client.clone());
        binding_tasks.spawn(tasks.run_forever("watches of bindings", objects));
        let kinds = binding_watches::follow_kinds(operator.clone(), client.clone());
        binding_tasks.spawn(tasks.run_forever("watch of kinds", kinds));
        Self {
            operator,
            client,
            running: BTreeMap::new(),
            keda,
            _of_bindings: binding_tasks,
        }
    }

    /// Starts missing watches and stops those of other namespaces, leaving their actors unchanged. Returns whether
    /// anything changed.
    pub fn set_scopes(&mut self, scopes: &BTreeSet<WatchScope>) -> bool {
        let previous: BTreeSet<WatchScope> = self.running.keys().cloned().collect();
        if previous == *scopes {
            return false;
        }
        self.running.retain(|scope, _| scopes.contains(scope));
        self.operator.forget_all_but(scopes);
        let Context {
            stores, bindings, ..
        } = &*self.operator.context;
        bindings.kinds.set_access_scopes(scopes);
        let actors = &stores.actors;
        scopes
            .difference(&previous)
            .for_each(|scope| actors.list_pending(scope));
        for scope in scopes.difference(&previous) {
            let tasks = self.start_all(scope);
            self.running.insert(scope.clone(), tasks);
        }
        true
    }

    fn start_all(&self, scope: &WatchScope) -> JoinSet<()> {
        let Context {
            stores,
            workloads,
            creation_failures,
            config_maps,
            service_accounts,
            scaled_objects,
            trigger_authentications,
            ..
        } = &*self.operator.context;
        let tasks = [
            self.task(scope, &stores.actors, None, Operator::on_actor_change),
            self.task(
                scope,
                &workloads.deployments.store,
                Some(MANAGED_BY_SELECTOR),
                Operator::on_change,
            ),
            self.task(
                scope,
                &workloads.stateful_sets.store,
                Some(MANAGED_BY_SELECTOR),
                Operator::on_change,
            ),
            self.task(
                scope,
                &service_accounts.store,
                Some(MANAGED_BY_SELECTOR),
                Operator::on_change,
            ),
            self.task(
                scope,
                &config_maps.objects.store,
                Some(SHARED),
                Operator::on_change,
            ),
            self.task_of_pods(scope),
            self.task_of_events::<PodEventRecord>(
                scope,
                stores.mount_failures.clone(),
                POD_WARNINGS,
            ),
            self.task_of_events::<StatefulSetFailureRecord>(
                scope,
                creation_failures.clone(),
                SET_REJECTIONS,
            ),
            // No label selector: foreign HPAs and `ScaledObject`s may scale the same workload.
            self.task(scope, &stores.hpas, None, Operator::on_autoscaler_change),
            self.task_of_keda(
                scope,
                &scaled_objects.store,
                None,
                Operator::on_autoscaler_change,
            ),
            self.task_of_keda(
                scope,
                &trigger_authentications.store,
                Some(MANAGED_BY_SELECTOR),
                Operator::on_change,
            ),
        ];
        tasks.into_iter().collect()
    }

    fn task<R>(
        &self,
        scope: &WatchScope,
        store: &Arc<Store<R>>,
        labels: Option<&'static str>,
        on_change: fn(&Operator, Enqueue),
    ) -> BoxFuture<'static, ()>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let watch = self.watch(scope, store.clone(), by_labels(labels));
        self.run(watch, ready(()), on_change)
    }

    /// Watches the pods of actors, which bindings also need.
    fn task_of_pods(&self, scope: &WatchScope) -> BoxFuture<'static, ()> {
        let Context {
            stores, bindings, ..
        } = &*self.operator.context;
        let store: Arc<dyn WatchSink<PodRecord>> =
            Arc::new(LabelledPods::new(&stores.pods, bindings));
        let watch = self.watch(scope, store, by_labels(Some(label::ASYA)));
        self.run(watch, ready(()), Operator::on_change)
    }

    /// Watches a kind of KEDA, which may be installed or removed at any time.
    fn task_of_keda<R>(
        &self,
        scope: &WatchScope,
        store: &Arc<Store<R>>,
        labels: Option<&'static str>,
        on_change: fn(&Operator, Enqueue),
    ) -> BoxFuture<'static, ()>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let watch = Watch {
            served: Some(self.operator.context.keda.installed()),
            ..self.watch(scope, store.clone(), by_labels(labels))
        };
        self.run(watch, self.keda.discovered.clone(), on_change)
    }

    /// Watches Events about failures that no object's status reports.
    fn task_of_events<R>(
        &self,
        scope: &WatchScope,
        sink: Arc<dyn WatchSink<R>>,
        fields: &'static str,
    ) -> BoxFuture<'static, ()>
    where
        R: Record<Kind = Event>,
    {
        let selector = Selector {
            fields: Some(fields.into()),
            ..Selector::default()
        };
        let watch = self.watch(scope, sink, selector);
        self.run(watch, ready(()), Operator::on_change)
    }

    /// Runs a watch once `first` has completed.
    fn run<R>(
        &self,
        watch: Watch<R>,
        first: impl Future<Output = ()> + Send + 'static,
        on_change: fn(&Operator, Enqueue),
    ) -> BoxFuture<'static, ()>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let operator = self.operator.clone();
        let run = async move {
            first.await;
            watch
                .run(move |enqueue| on_change(&operator, enqueue))
                .await;
        };
        let name = format!("watch {}", R::kind_name());
        self.operator.tasks.run_forever(&name, run).boxed()
    }

    fn watch<R>(
        &self,
        scope: &WatchScope,
        store: Arc<dyn WatchSink<R>>,
        selector: Selector,
    ) -> Watch<R>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        let (api, suffix) = match scope {
            WatchScope::Namespace(namespace) => (
                Api::namespaced(client, namespace),
                format!(" in {namespace}"),
            ),
            WatchScope::Cluster => (Api::all(client), String::new()),
        };
        let kind = format!("watch {}", R::kind_name());
        let check = format!("{kind}{suffix}");
        Watch {
            api,
            scope: scope.clone(),
            selector,
            served: None,
            sink: store,
            check: self.operator.readiness.check_in(&kind, &check),
            metrics: Arc::clone(&self.operator.context.metrics),
        }
    }
}

fn by_labels(labels: Option<&'static str>) -> Selector {
    Selector {
        labels: labels.map(Into::into),
        ..Selector::default()
    }
}

impl KedaCrdWatches {
    fn start(operator: &Operator, client: &Client) -> Self {
        let mut running = JoinSet::new();
        let mut passed = Vec::new();
        let crds = &operator.context.keda.crds;
        for ((name, field_selector), store) in keda::CRDS.into_iter().zip(crds) {
            let check = operator.readiness.check(&format!("watch CRD {name}"));
            passed.push(check.passed());
            let watch: Watch<CrdRecord> = Watch {
                api: Api::all(client.clone()),
                scope: WatchScope::Cluster,
                selector: Selector {
                    fields: Some(field_selector.into()),
                    ..Selector::default()
                },
                served: None,
                sink: store.clone(),
                check,
                metrics: Arc::clone(&operator.context.metrics),
            };
            let (operator, tasks) = (operator.clone(), operator.tasks.clone());
            let run = watch.run(move |enqueue| operator.on_keda_crd_change(enqueue));
            running.spawn(tasks.run_forever(&format!("watch CRD {name}"), run));
        }
        Self {
            _running: running,
            discovered: join_all(passed).map(drop).boxed().shared(),
        }
    }
}

#[cfg(test)]
mod tests;
