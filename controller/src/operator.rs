//! The operator's tasks: watches that keep the stores, and passes that the leader runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asya_shared::names::label;
use k8s_openapi::NamespaceResourceScope;
use kube::{Client, Resource};
use tokio::task::JoinSet;

use crate::census;
use crate::health::Readiness;
use crate::pass::{self, Pace, Work};
use crate::queue::health::{HealthPass, Schedule};
use crate::reconcile::Context;
use crate::record::{Concerns, Key, PodEventRecord, Record};
use crate::store::{Scope, Store};
use crate::watch::{Keeps, Selector, Watch};
use crate::work_queue::WorkQueue;

/// Objects that belong to one actor.
const OURS: &str = "app.kubernetes.io/managed-by=asya-operator";
/// Objects that the actors of a namespace share.
const SHARED: &str = "app.kubernetes.io/part-of=asya";

/// What tells of volumes that cannot be mounted. A selector can name one reason, or leave some out: the most
/// frequent others.
const POD_WARNINGS: &str = "involvedObject.kind=Pod,type=Warning,\
    reason!=BackOff,reason!=Failed,reason!=FailedCreatePodSandBox,\
    reason!=FailedScheduling,reason!=FailedToRetrieveImagePullSecret,reason!=Unhealthy";

/// What runs in every replica, leader or not: the caches stay warm (FW-11).
#[derive(Clone)]
pub struct Operator {
    /// What passes work with.
    pub context: Arc<Context>,
    /// What is due.
    pub queue: WorkQueue<Work>,
    /// How often actors are seen without an event.
    pub pace: Pace,
    /// How often queues are.
    pub schedule: Schedule,
    /// Gates of `/readyz`.
    pub readiness: Readiness,
}

impl Operator {
    /// Lets metrics read queue and stores whenever they are asked for.
    pub fn measure(&self) {
        let operator = self.clone();
        self.context.metrics.watch_queue(&self.queue);
        self.context.metrics.before_scrape(move |metrics| {
            let stores = &operator.context.stores;
            census::count(&stores.actors, metrics);
            metrics.records("AsyncActor", stores.actors.len());
            let workloads = &operator.context.workloads;
            metrics.records("Deployment", workloads.deployments.len());
            metrics.records("StatefulSet", workloads.stateful_sets.len());
            operator.context.depths.show(metrics);
            metrics.records("ConfigMap", stores.config_maps.len());
            metrics.records("Pod", stores.pods.len());
            metrics.records("Event", stores.mounts.len());
        });
    }

    /// A changed actor may have taken a queue's name, or left one to another.
    fn reclaim(&self, concerns: Concerns) {
        if let Concerns::Actor(key) = &concerns {
            self.refresh_claim(key);
        }
        self.wake(concerns);
    }

    /// Takes what an actor claims by now, and wakes those whom that concerns.
    fn refresh_claim(&self, key: &Key) {
        let Context {
            claims,
            installation,
            stores,
            ..
        } = &*self.context;
        let actor = stores.actors.get(key);
        for other in claims.refresh(&installation.transports, key, actor.as_deref()) {
            self.queue.now(Work::Actor(other));
        }
    }

    /// Nobody looks after other namespaces any more: neither records nor claims of theirs count.
    fn forget_all_but(&self, scopes: &BTreeSet<Scope>) {
        let Context {
            stores,
            workloads,
            claims,
            installation,
            ..
        } = &*self.context;
        for key in stores.actors.forget_all_but(scopes) {
            claims.refresh(&installation.transports, &key, None);
        }
        workloads.deployments.forget_all_but(scopes);
        workloads.stateful_sets.forget_all_but(scopes);
        stores.config_maps.forget_all_but(scopes);
        stores.pods.forget_all_but(scopes);
    }

    fn wake(&self, concerns: Concerns) {
        match concerns {
            Concerns::Actor(key) => self.queue.now(Work::Actor(key)),
            Concerns::Namespace(namespace) => {
                for key in self.context.stores.actors.keys_in(&namespace) {
                    self.queue.now(Work::Actor(key));
                }
                if self.context.runtime.is_home(&namespace) {
                    self.queue.now(Work::RuntimeScript);
                }
            }
            Concerns::Nobody => {}
        }
    }

    /// Runs passes until the queue is closed. Every known actor is seen once (FW-4).
    pub async fn lead(self) {
        let health = HealthPass {
            brokers: self.context.brokers.clone(),
            depths: Arc::clone(&self.context.depths),
            schedule: self.schedule,
            actors: self.clone(),
        };
        let operator = self;
        let Self {
            context,
            queue,
            pace,
            ..
        } = operator.clone();
        queue.now(Work::RuntimeScript);
        for key in context.stores.actors.keys() {
            queue.now(Work::Actor(key));
        }
        let run = move |work: Work, attempt| {
            let operator = operator.clone();
            async move {
                let actor = work.actor().cloned();
                let outcome = pass::run(&operator.context, work, attempt, pace).await;
                // A status that lists another queue is no event: it was written here.
                if let Some(actor) = actor {
                    operator.refresh_claim(&actor);
                }
                outcome
            }
        };
        tokio::select! {
            () = queue.run(run) => {}
            () = health.run() => {}
        }
    }
}

/// The watches that run: one per kind in each of some namespaces, or in all. They end when it is dropped.
pub struct Watches {
    operator: Operator,
    client: Client,
    running: BTreeMap<Scope, JoinSet<()>>,
}

impl Watches {
    /// None run yet.
    pub fn new(operator: Operator, client: Client) -> Self {
        Self {
            operator,
            client,
            running: BTreeMap::new(),
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
        for scope in scopes.difference(&before) {
            let tasks = self.start_all(scope);
            self.running.insert(scope.clone(), tasks);
        }
        true
    }

    fn start_all(&self, scope: &Scope) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let Context {
            stores, workloads, ..
        } = &*self.operator.context;
        self.start(&mut tasks, scope, &stores.actors, None, Operator::reclaim);
        self.start(
            &mut tasks,
            scope,
            &workloads.deployments,
            Some(OURS),
            Operator::wake,
        );
        self.start(
            &mut tasks,
            scope,
            &workloads.stateful_sets,
            Some(OURS),
            Operator::wake,
        );
        self.start(
            &mut tasks,
            scope,
            &stores.config_maps,
            Some(SHARED),
            Operator::wake,
        );
        self.start(
            &mut tasks,
            scope,
            &stores.pods,
            Some(label::ASYA),
            Operator::wake,
        );
        let fields = Some(POD_WARNINGS);
        let mounts: Arc<dyn Keeps<PodEventRecord>> = stores.mounts.clone();
        let selector = Selector {
            fields,
            ..Selector::default()
        };
        self.start_selected(&mut tasks, scope, mounts, selector, Operator::wake);
        tasks
    }

    fn start<R>(
        &self,
        tasks: &mut JoinSet<()>,
        scope: &Scope,
        store: &Arc<Store<R>>,
        labels: Option<&'static str>,
        concerned: fn(&Operator, Concerns),
    ) where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let store: Arc<dyn Keeps<R>> = store.clone();
        let selector = Selector {
            labels,
            ..Selector::default()
        };
        self.start_selected(tasks, scope, store, selector, concerned);
    }

    fn start_selected<R>(
        &self,
        tasks: &mut JoinSet<()>,
        scope: &Scope,
        store: Arc<dyn Keeps<R>>,
        selector: Selector,
        concerned: fn(&Operator, Concerns),
    ) where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let place = scope
            .as_deref()
            .map_or_else(String::new, |namespace| format!(" in {namespace}"));
        let operator = self.operator.clone();
        let watch = Watch {
            client: self.client.clone(),
            scope: scope.clone(),
            selector,
            store,
            gate: operator
                .readiness
                .gate(&format!("watch {}{place}", R::Kind::kind(&()))),
            metrics: Arc::clone(&operator.context.metrics),
        };
        tasks.spawn(watch.run(move |concerns| concerned(&operator, concerns)));
    }
}
