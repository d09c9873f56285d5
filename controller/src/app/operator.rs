//! The operator in every replica: maps events to work items, and reconciles while it leads.

use std::collections::BTreeSet;
use std::sync::Arc;

use asya_process::metrics::Exposed;
use asya_process::tasks::Tasks;
use k8s_openapi::jiff::Timestamp;

use super::actor_gauges;
use super::leftovers;
use super::worker::{self, RequeuePolicy};
use crate::broker::health::{HealthPass, Schedule};
use crate::cluster::store::Scope;
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::{Enqueue, Key, Record, RefusalRecord};
use crate::telemetry::health::Readiness;
use crate::work_queue::WorkQueue;

/// Runs in every replica, leader or not, so that the caches stay warm (FW-11).
#[derive(Clone)]
pub struct Operator {
    pub context: Arc<Context>,
    pub queue: WorkQueue<WorkItem>,
    /// How often actors are resynced.
    pub pace: RequeuePolicy,
    /// How often queues are checked and their messages counted.
    pub schedule: Schedule,
    /// Gates of `/readyz`.
    pub readiness: Readiness,
    /// Tasks that must not end.
    pub tasks: Tasks,
}

impl Operator {
    /// Refreshes the gauges of queue and stores before each scrape.
    pub fn measure(&self) {
        let operator = self.clone();
        self.context.metrics.watch_queue(&self.queue);
        self.context.metrics.before_scrape(move |metrics| {
            let Context {
                stores,
                depths,
                workloads,
                refusals,
                config_maps,
                service_accounts,
                scaled_objects,
                trigger_authentications,
                bindings,
                keda,
                ..
            } = &*operator.context;
            actor_gauges::count(&stores.actors, metrics);
            depths.show(metrics);
            metrics.records("AsyncActor", stores.actors.len());
            metrics.records("Deployment", workloads.deployments.store.len());
            metrics.records("StatefulSet", workloads.stateful_sets.store.len());
            metrics.records("HorizontalPodAutoscaler", stores.hpas.len());
            metrics.records("Pod", stores.pods.len());
            metrics.records("Event", stores.mounts.len());
            metrics.records(&RefusalRecord::what(), refusals.len());
            metrics.records("ConfigMap", config_maps.objects.store.len());
            metrics.records("ServiceAccount", service_accounts.store.len());
            metrics.records("ScaledObject", scaled_objects.store.len());
            metrics.records("TriggerAuthentication", trigger_authentications.store.len());
            let crds = keda.crds.iter().map(|crd| crd.len()).sum();
            metrics.records("CustomResourceDefinition", crds);
            for (what, count) in bindings.sizes() {
                metrics.records(&what, count);
            }
        });
    }

    /// Enqueues work on the leader only. A standby processes nothing, and a new leader enqueues everything (SAFE-37).
    fn enqueue(&self, work: WorkItem) {
        if self.context.leading_since.get().is_some() {
            self.queue.now(work);
        }
    }

    /// Refreshes claims first: a changed actor may have taken a queue's name, or released it to another actor.
    pub fn reclaim(&self, concerns: Enqueue) {
        if let Enqueue::Actor(key) = &concerns {
            self.refresh_claim(key);
        }
        self.wake(concerns);
    }

    /// Updates what an actor claims, and enqueues the actors that this concerns.
    fn refresh_claim(&self, key: &Key) {
        let Context {
            bindings,
            claims,
            installation,
            stores,
            ..
        } = &*self.context;
        let actor = stores.actors.get(key);
        for other in bindings.refresh(key, actor.as_deref()) {
            self.enqueue(WorkItem::Actor(other));
        }
        for other in bindings.probes.woken() {
            self.queue.now(WorkItem::Actor(other));
        }
        for other in claims.refresh(&installation.transports, key, actor.as_deref()) {
            self.enqueue(WorkItem::Actor(other));
        }
    }

    /// Drops the records and claims of namespaces that are no longer watched.
    pub fn forget_all_but(&self, scopes: &BTreeSet<Scope>) {
        let context = &self.context;
        for key in context.stores.actors.forget_all_but(scopes) {
            let transports = &context.installation.transports;
            context.claims.refresh(transports, &key, None);
            context.forget(&key);
            context.bindings.refresh(&key, None);
        }
        context.workloads.deployments.store.forget_all_but(scopes);
        context.workloads.stateful_sets.store.forget_all_but(scopes);
        context.config_maps.forget_all_but(scopes);
        context.service_accounts.store.forget_all_but(scopes);
        context.scaled_objects.store.forget_all_but(scopes);
        context.trigger_authentications.store.forget_all_but(scopes);
        context.stores.hpas.forget_all_but(scopes);
        context.stores.pods.forget_all_but(scopes);
        context.bindings.marked.forget_all_but(scopes);
        context.stores.mounts.forget_all_but(scopes);
    }

    /// Enqueues actors when KEDA is installed or removed.
    pub fn look_for_keda(&self, concerns: Enqueue) {
        if self.context.keda.look_again() {
            self.wake(concerns);
        }
    }

    /// Enqueues the actors that a change concerns.
    pub fn wake(&self, concerns: Enqueue) {
        match concerns {
            Enqueue::Actor(key) => self.enqueue(WorkItem::Actor(key)),
            Enqueue::Namespace(namespace) => {
                self.context.bindings.changed().notify_one();
                for key in self.context.stores.actors.keys_in(&namespace) {
                    self.enqueue(WorkItem::Actor(key));
                }
                if self.context.runtime.is_home(&namespace) {
                    self.enqueue(WorkItem::RuntimeScript);
                }
            }
            Enqueue::Everybody => {
                self.context.bindings.changed().notify_one();
                for key in self.context.stores.actors.keys() {
                    self.enqueue(WorkItem::Actor(key));
                }
            }
            Enqueue::Nobody => {}
        }
    }

    /// An autoscaler, or a potential one, also concerns the actors whose target it scales (SO-3).
    pub fn wake_scaled(&self, concerns: Enqueue) {
        if let Enqueue::Actor(key) = &concerns {
            for actor in self.context.bindings.scaling(key) {
                self.enqueue(WorkItem::Actor(actor));
            }
        }
        self.wake(concerns);
    }

    /// Enqueues everything. A status update enqueues nothing, so refresh the claims of all actors before the first
    /// reconcile (QUE-3).
    fn begin(&self) {
        self.context.leading_since.get_or_init(Timestamp::now);
        let actors = &self.context.stores.actors;
        for key in actors.keys() {
            self.refresh_claim(&key);
        }
        self.enqueue(WorkItem::RuntimeScript);
        for key in actors.keys() {
            self.enqueue(WorkItem::Actor(key));
        }
    }

    /// Reconciles until the queue is closed, beginning with every known actor (FW-4).
    pub async fn lead(self) {
        let health = HealthPass {
            brokers: self.context.brokers.clone(),
            depths: Arc::clone(&self.context.depths),
            schedule: self.schedule,
            actors: self.clone(),
        };
        let operator = self;
        let Self { queue, pace, .. } = operator.clone();
        let context = Arc::clone(&operator.context);
        operator.begin();
        let run = move |work: WorkItem, attempt| {
            let operator = operator.clone();
            async move {
                let actor = work.actor().cloned();
                let outcome = worker::run(&operator.context, work, attempt, pace).await;
                // We wrote the status ourselves, so no event follows: refresh the claims here.
                if let Some(actor) = actor {
                    operator.refresh_claim(&actor);
                }
                for next in operator.context.rollouts.invite() {
                    operator.enqueue(WorkItem::Actor(next));
                }
                outcome
            }
        };
        tokio::select! {
            () = queue.run(run) => {}
            () = health.run() => {}
            () = leftovers::sweep(context) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
