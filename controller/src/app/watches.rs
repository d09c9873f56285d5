//! Which watches run: those that keep the stores, in the namespaces that are served.

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
/// Objects that the actors of a namespace share.
const SHARED: &str = "app.kubernetes.io/part-of=asya";

/// What tells of volumes that cannot be mounted. A selector can name one reason, or leave some out: the most
/// frequent others.
const POD_WARNINGS: &str = "involvedObject.kind=Pod,type=Warning,\
    reason!=BackOff,reason!=Failed,reason!=FailedCreatePodSandBox,\
    reason!=FailedScheduling,reason!=FailedToRetrieveImagePullSecret,reason!=Unhealthy";

/// What tells of pods that a `StatefulSet` is not allowed to make.
const SET_REFUSALS: &str = "involvedObject.kind=StatefulSet,type=Warning,reason=FailedCreate";

/// The watches that run: one per kind in each of some namespaces, or in all. They end when it is dropped.
pub struct Watches {
    operator: Operator,
    client: Client,
    running: BTreeMap<Scope, JoinSet<()>>,
    keda: WatchesOfCrds,
    _of_bindings: JoinSet<()>,
}

/// The watches of KEDA's CRDs, which belong to no namespace.
struct WatchesOfCrds {
    _running: JoinSet<()>,
    /// Ends when it is known whether KEDA is there.
    known: Shared<BoxFuture<'static, ()>>,
}

impl Watches {
    /// None but those of KEDA's CRDs run yet; those for bindings follow what is bound.
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

    /// Starts what is missing and ends what is no longer asked for, whose actors are left as they are.
    /// Answers whether anything changed.
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
            // Those of others are rivals.
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

    /// Of actors' pods, which bindings hear of, too.
    fn task_of_pods(&self, scope: &Scope) -> BoxFuture<'static, ()> {
        let Context {
            stores, bindings, ..
        } = &*self.operator.context;
        let store: Arc<dyn WatchSink<PodRecord>> =
            Arc::new(MarkedPods::new(&stores.pods, bindings));
        let watch = self.watch(scope, store, by_labels(Some(label::ASYA)));
        self.run(watch, ready(()), Operator::wake)
    }

    /// Of a kind that may come and go.
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

    /// Of Events, which tell what no object does.
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

    /// Runs a watch when `first` has ended.
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
