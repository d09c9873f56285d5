//! The operator's tasks: watches that keep the stores, and passes that the leader runs.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::names::label;
use k8s_openapi::NamespaceResourceScope;
use kube::{Client, Resource};
use tokio::task::JoinSet;
use tracing::{Instrument, info_span, warn};

use crate::census;
use crate::health::Readiness;
use crate::reconcile::{self, Context, Retry};
use crate::record::{Concerns, Key, Record};
use crate::store::{Scope, Store};
use crate::watch::Watch;
use crate::work_queue::{Attempt, Outcome, WorkQueue};

/// Objects that belong to one actor.
const OURS: &str = "app.kubernetes.io/managed-by=asya-operator";
/// Objects that the actors of a namespace share.
const SHARED: &str = "app.kubernetes.io/part-of=asya";

/// Without any event every actor is seen again after this long, give or take a tenth (FW-5).
const RESYNC: Duration = Duration::from_hours(10);
/// Where nothing will wake us: first delay and longest.
const SLOWLY: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(5));

/// What runs in every replica, leader or not: the caches stay warm (FW-11).
#[derive(Clone)]
pub struct Operator {
    /// What passes work with.
    pub context: Arc<Context>,
    /// Which actor is due.
    pub queue: WorkQueue<Key>,
    /// Gates of `/readyz`.
    pub readiness: Readiness,
    /// Namespaces that are watched; empty means all.
    pub namespaces: Vec<Arc<str>>,
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
            metrics.records("ConfigMap", stores.config_maps.len());
            metrics.records("Pod", stores.pods.len());
        });
    }

    /// Starts one watch per kind and namespace. They end with the set.
    pub fn watch(&self, client: &Client) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let Context {
            stores, workloads, ..
        } = &*self.context;
        let scopes: Vec<Scope> = if self.namespaces.is_empty() {
            vec![None]
        } else {
            self.namespaces.iter().cloned().map(Some).collect()
        };
        for scope in &scopes {
            let mut watches = Watches {
                operator: self,
                client,
                scope,
                tasks: &mut tasks,
            };
            watches.start(&stores.actors, None, Self::reclaim);
            watches.start(&workloads.deployments, Some(OURS), Self::wake);
            watches.start(&workloads.stateful_sets, Some(OURS), Self::wake);
            watches.start(&stores.config_maps, Some(SHARED), Self::wake);
            watches.start(&stores.pods, Some(label::ASYA), Self::wake);
        }
        tasks
    }

    /// A changed actor may have taken a queue's name, or left one to another.
    fn reclaim(&self, concerns: Concerns) {
        if let Concerns::Actor(key) = &concerns {
            let Context {
                claims,
                installation,
                stores,
                ..
            } = &*self.context;
            let others = claims.refresh(
                &installation.transports,
                key,
                stores.actors.get(key).as_deref(),
            );
            for other in others {
                self.queue.now(other);
            }
        }
        self.wake(concerns);
    }

    fn wake(&self, concerns: Concerns) {
        match concerns {
            Concerns::Actor(key) => self.queue.now(key),
            Concerns::Namespace(namespace) => {
                self.context
                    .stores
                    .actors
                    .keys_in(&namespace)
                    .into_iter()
                    .for_each(|key| self.queue.now(key));
            }
            Concerns::Nobody => {}
        }
    }

    /// Runs passes until the queue is closed. Every known actor is seen once (FW-4).
    pub async fn lead(self) {
        let queue = self.queue.clone();
        self.context
            .stores
            .actors
            .keys()
            .into_iter()
            .for_each(|key| queue.now(key));
        queue
            .run(move |key, attempt| {
                let context = Arc::clone(&self.context);
                async move { pass(&context, key, attempt).await }
            })
            .await;
    }
}

/// The watches of one namespace, or of all.
struct Watches<'a> {
    operator: &'a Operator,
    client: &'a Client,
    scope: &'a Scope,
    tasks: &'a mut JoinSet<()>,
}

impl Watches<'_> {
    fn start<R>(
        &mut self,
        store: &Arc<Store<R>>,
        labels: Option<&'static str>,
        concerned: fn(&Operator, Concerns),
    ) where
        R: Record,
        R::Kind: Resource<Scope = NamespaceResourceScope>,
    {
        let place = self
            .scope
            .as_deref()
            .map_or_else(String::new, |namespace| format!(" in {namespace}"));
        let operator = self.operator.clone();
        let watch = Watch {
            client: self.client.clone(),
            scope: self.scope.clone(),
            labels,
            store: Arc::clone(store),
            gate: operator
                .readiness
                .gate(&format!("watch {}{place}", R::Kind::kind(&()))),
            metrics: Arc::clone(&operator.context.metrics),
        };
        self.tasks
            .spawn(watch.run(move |concerns| concerned(&operator, concerns)));
    }
}

/// One pass, with its metrics and the context of its log lines (FW-10).
async fn pass(context: &Context, key: Key, attempt: Attempt) -> Outcome {
    let actor = context.stores.actors.get(&key);
    let (uid, generation) =
        actor.map_or_else(Default::default, |a| (a.metadata.uid.clone(), a.generation));
    let span = info_span!("pass", namespace = &*key.namespace, actor = &*key.name, %uid, generation, id = fastrand::u32(..));
    let timer = context.metrics.pass();
    let result = reconcile::reconcile(context, &key)
        .instrument(span.clone())
        .await;
    let _entered = span.enter();
    let retry = match &result {
        Ok(retry) => {
            match retry {
                None | Some(Retry::OnChange) => timer.succeeded(),
                Some(Retry::After(_) | Retry::Now | Retry::Soon | Retry::Slowly) => {
                    timer.looks_again();
                }
            }
            *retry
        }
        Err(error) if error.retry() == Retry::Now => {
            timer.looks_again();
            Some(Retry::Now)
        }
        Err(error) => {
            timer.failed(error.kind());
            warn!(%error, kind = error.kind(), "pass failed");
            Some(error.retry())
        }
    };
    retry.map_or(Outcome::Done, |retry| outcome(retry, attempt))
}

fn outcome(retry: Retry, attempt: Attempt) -> Outcome {
    match retry {
        Retry::OnChange => Outcome::Again(RESYNC.mul_f64(0.9 + 0.2 * fastrand::f64())),
        Retry::Now => Outcome::Again(Duration::ZERO),
        Retry::After(delay) => Outcome::Again(delay),
        Retry::Soon => Outcome::Failed { after: None },
        Retry::Slowly => {
            let full = SLOWLY
                .0
                .saturating_mul(1 << attempt.failures.min(8))
                .min(SLOWLY.1);
            Outcome::Failed {
                after: Some(full.mul_f64(0.8 + 0.2 * fastrand::f64())),
            }
        }
    }
}
