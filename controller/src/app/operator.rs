//! What runs in every replica: passes that the leader makes, and whom an event wakes.

use std::collections::BTreeSet;
use std::sync::Arc;

use asya_process::metrics::Exposed;
use asya_process::tasks::Tasks;
use k8s_openapi::jiff::Timestamp;

use super::actor_gauges;
use super::leftovers;
use super::worker::{self, Pace};
use crate::broker::health::{HealthPass, Schedule};
use crate::cluster::store::Scope;
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::{Enqueue, Key, Record, RefusalRecord};
use crate::telemetry::health::Readiness;
use crate::work_queue::WorkQueue;

/// What runs in every replica, leader or not: the caches stay warm (FW-11).
#[derive(Clone)]
pub struct Operator {
    /// What passes work with.
    pub context: Arc<Context>,
    /// What is due.
    pub queue: WorkQueue<WorkItem>,
    /// How often actors are seen without an event.
    pub pace: Pace,
    /// How often queues are.
    pub schedule: Schedule,
    /// Gates of `/readyz`.
    pub readiness: Readiness,
    /// What must not end.
    pub tasks: Tasks,
}

impl Operator {
    /// Lets metrics read queue and stores whenever they are asked for.
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

    /// Lets a pass do this, on the leader. A standby replica works nothing off, and whoever begins to lead queues all that
    /// there is (SAFE-37).
    fn enqueue(&self, work: WorkItem) {
        if self.context.leading_since.get().is_some() {
            self.queue.now(work);
        }
    }

    /// A changed actor may have taken a queue's name, or left one to another.
    pub fn reclaim(&self, concerns: Enqueue) {
        if let Enqueue::Actor(key) = &concerns {
            self.refresh_claim(key);
        }
        self.wake(concerns);
    }

    /// Takes what an actor claims by now, and wakes those whom that concerns.
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

    /// Nobody looks after other namespaces any more: neither records nor claims of theirs count.
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

    /// Who scales by queue depth can do so now, or no longer can.
    pub fn look_for_keda(&self, concerns: Enqueue) {
        if self.context.keda.look_again() {
            self.wake(concerns);
        }
    }

    /// Lets a pass look at whom a change concerns.
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

    /// What scales an object, or may, concerns those whose target it is, too (SO-3).
    pub fn wake_scaled(&self, concerns: Enqueue) {
        if let Enqueue::Actor(key) = &concerns {
            for actor in self.context.bindings.scaling(key) {
                self.enqueue(WorkItem::Actor(actor));
            }
        }
        self.wake(concerns);
    }

    /// All that there is, is due. What statuses tell of queues wakes nobody, so before anybody's pass it is read again
    /// what all of them claim (QUE-3).
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

    /// Runs passes until the queue is closed. Every known actor is seen once (FW-4).
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
                // A status that lists another queue is no event: it was written here.
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
