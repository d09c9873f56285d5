//! The watches that fill the stores, in the namespaces that are served.

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
use crate::binding::MarkedPods;
use crate::cluster::keda;
use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::{Selector, Watch, WatchSink};
use crate::context::Context;
use crate::record::{CrdRecord, Enqueue, PodEventRecord, PodRecord, Record, RefusalRecord};

/// Objects that belong to one actor.
const OURS: &str = "app.kubernetes.io/managed-by=asya-operator";
/// Objects shared by the actors of a namespace.
const SHARED: &str = "app.kubernetes.io/part-of=asya";

/// Warnings about volumes that cannot be mounted. A field selector can match one reason or exclude several: exclude the
/// most frequent other ones.
const POD_WARNINGS: &str = "involvedObject.kind=Pod,type=Warning,\
    reason!=BackOff,reason!=Failed,reason!=FailedCreatePodSandBox,\
    reason!=FailedScheduling,reason!=FailedToRetrieveImagePullSecret,reason!=Unhealthy";

/// Warnings about pods that a `StatefulSet` may not create.
const SET_REFUSALS: &str = "involvedObject.kind=StatefulSet,type=Warning,reason=FailedCreate";

/// The running watches: one per kind, either in each of some namespaces or cluster-wide. Dropping them stops them.
pub struct Watches {
    operator: Operator,
    client: Client,
    running: BTreeMap<Scope, JoinSet<()>>,
    keda: WatchesOfCrds,
    _of_bindings: JoinSet<()>,
}

/// Watches of KEDA's CRDs, which are cluster-scoped.
struct WatchesOfCrds {
    _running: JoinSet<()>,
    /// Completes once it is known whether KEDA is installed.
    known: Shared<BoxFuture<'static, ()>>,
}

impl Watches {
    /// Starts only the watches of KEDA's CRDs and those that follow the bindings.
    pub fn new(operator: Operator, client: Client) -> Self {
        let keda = WatchesOfCrds::start(&operator, &client);
        let mut of_bindings = JoinSet::new();
        let tasks = &operator.tasks;
        let objects = binding_watches::follow(operator.clone(), client.clone());
        of_bindings.spawn(tasks.unending("watches of bindings", objects));
        let kinds = binding_watches::follow_kinds(operator.clone(), client.clone());
        of_bindings.spawn(tasks.unending("watch of kinds", kinds));
        Self {
            operator,
            client,
            running: BTreeMap::new(),
            keda,
            _of_bindings: of_bindings,
        }
    }

    /// Starts missing watches and stops those that are no longer wanted, whose actors are left as they are. Returns
    /// whether anything changed.
    pub fn cover(&mut self, scopes: &BTreeSet<Scope>) -> bool {
        let before: BTreeSet<Scope> = self.running.keys().cloned().collect();
        if before == *scopes {
            return false;
        }
        self.running.retain(|scope, _| scopes.contains(scope));
        self.operator.forget_all_but(scopes);
        let place = scopes.first().cloned().flatten();
        self.operator.context.bindings.kinds.look_in(place);
        let actors = &self.operator.context.stores.actors;
        scopes
            .difference(&before)
            .for_each(|scope| actors.awaited(scope));
        for scope in scopes.difference(&before) {
            let tasks = self.start_all(scope);
            self.running.insert(scope.clone(), tasks);
        }
        true
    }

    fn start_all(&self, scope: &Scope) -> JoinSet<()> {
        let Context {
            stores,
            workloads,
            refusals,
            config_maps,
            service_accounts,
            scaled_objects,
            trigger_authentications,
            ..
        } = &*self.operator.context;
        let tasks = [
            self.task(scope, &stores.actors, None, Operator::reclaim),
            self.task(
                scope,
                &workloads.deployments.store,
                Some(OURS),
                Operator::wake,
            ),
            self.task(
                scope,
                &workloads.stateful_sets.store,
                Some(OURS),
                Operator::wake,
            ),
            self.task(scope, &service_accounts.store, Some(OURS), Operator::wake),
            self.task(
                scope,
                &config_maps.objects.store,
                Some(SHARED),
                Operator::wake,
            ),
            self.task_of_pods(scope),
            self.task_of_events::<PodEventRecord>(scope, stores.mounts.clone(), POD_WARNINGS),
            self.task_of_events::<RefusalRecord>(scope, refusals.clone(), SET_REFUSALS),
            // No label selector: foreign HPAs and `ScaledObject`s may scale the same workload.
            self.task(scope, &stores.hpas, None, Operator::wake_scaled),
            self.task_of_keda(scope, &scaled_objects.store, None, Operator::wake_scaled),
            self.task_of_keda(
                scope,
                &trigger_authentications.store,
                Some(OURS),
                Operator::wake,
            ),
        ];
        tasks.into_iter().collect()
    }

    fn task<R>(
        &self,
        scope: &Scope,
        store: &Arc<Store<R>>,
        labels: Option<&'static str>,
        concerned: fn(&Operator, Enqueue),
    ) -> BoxFuture<'static, ()>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let watch = self.watch(scope, store.clone(), by_labels(labels));
        self.run(watch, ready(()), concerned)
    }

    /// Watches the pods of actors, which bindings need, too.
    fn task_of_pods(&self, scope: &Scope) -> BoxFuture<'static, ()> {
        let Context {
            stores, bindings, ..
        } = &*self.operator.context;
        let store: Arc<dyn WatchSink<PodRecord>> =
            Arc::new(MarkedPods::new(&stores.pods, bindings));
        let watch = self.watch(scope, store, by_labels(Some(label::ASYA)));
        self.run(watch, ready(()), Operator::wake)
    }

    /// Watches a kind of KEDA, which may be installed or removed at any time.
    fn task_of_keda<R>(
        &self,
        scope: &Scope,
        store: &Arc<Store<R>>,
        labels: Option<&'static str>,
        concerned: fn(&Operator, Enqueue),
    ) -> BoxFuture<'static, ()>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let watch = Watch {
            served: Some(self.operator.context.keda.installed()),
            ..self.watch(scope, store.clone(), by_labels(labels))
        };
        self.run(watch, self.keda.known.clone(), concerned)
    }

    /// Watches Events that report what no object shows.
    fn task_of_events<R>(
        &self,
        scope: &Scope,
        told: Arc<dyn WatchSink<R>>,
        fields: &'static str,
    ) -> BoxFuture<'static, ()>
    where
        R: Record<Kind = Event>,
    {
        let selector = Selector {
            fields: Some(fields.into()),
            ..Selector::default()
        };
        let watch = self.watch(scope, told, selector);
        self.run(watch, ready(()), Operator::wake)
    }

    /// Runs a watch once `first` has completed.
    fn run<R>(
        &self,
        watch: Watch<R>,
        first: impl Future<Output = ()> + Send + 'static,
        concerned: fn(&Operator, Enqueue),
    ) -> BoxFuture<'static, ()>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let operator = self.operator.clone();
        let run = async move {
            first.await;
            watch
                .run(move |concerns| concerned(&operator, concerns))
                .await;
        };
        let name = format!("watch {}", R::what());
        self.operator.tasks.unending(&name, run).boxed()
    }

    fn watch<R>(&self, scope: &Scope, store: Arc<dyn WatchSink<R>>, selector: Selector) -> Watch<R>
    where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let client = self.client.clone();
        let (api, place) = match scope {
            Some(namespace) => (
                Api::namespaced(client, namespace),
                format!(" in {namespace}"),
            ),
            None => (Api::all(client), String::new()),
        };
        let readiness = &self.operator.readiness;
        Watch {
            api,
            scope: scope.clone(),
            selector,
            served: None,
            store,
            gate: readiness.gate(&format!("watch {}{place}", R::what())),
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

impl WatchesOfCrds {
    fn start(operator: &Operator, client: &Client) -> Self {
        let (mut running, mut opened) = (JoinSet::new(), Vec::new());
        let crds = &operator.context.keda.crds;
        for ((name, selected), store) in keda::CRDS.into_iter().zip(crds) {
            let gate = operator.readiness.gate(&format!("watch CRD {name}"));
            opened.push(gate.opened());
            let watch: Watch<CrdRecord> = Watch {
                api: Api::all(client.clone()),
                scope: None,
                selector: Selector {
                    fields: Some(selected.into()),
                    ..Selector::default()
                },
                served: None,
                store: store.clone(),
                gate,
                metrics: Arc::clone(&operator.context.metrics),
            };
            let (operator, tasks) = (operator.clone(), operator.tasks.clone());
            let run = watch.run(move |concerns| operator.look_for_keda(concerns));
            running.spawn(tasks.unending(&format!("watch CRD {name}"), run));
        }
        let known = join_all(opened).map(drop).boxed().shared();
        Self {
            _running: running,
            known,
        }
    }
}

#[cfg(test)]
mod tests;
