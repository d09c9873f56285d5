//! The operator in every replica: maps events to work items, and reconciles while it leads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asya_process::clock;
use asya_process::metrics::ExposedMetrics;
use asya_process::tasks::Tasks;
use tokio::time::Instant;

use super::actor_gauges;
use super::shared_config_maps;
use super::worker::{self, RequeuePolicy};
use crate::broker::health::{CheckFailures, CheckIntervals, HealthCheck};
use crate::cluster::watch_scope::WatchScope;
use crate::context::Context;
use crate::reconcile::all_synced;
use crate::reconcile::work_item::WorkItem;
use crate::record::{Enqueue, Key, Record, StatefulSetFailureRecord};
use crate::telemetry::health::Readiness;
use crate::work_queue::WorkQueue;

/// A foreign object often changes several times in a row: all changes within this time cause one read (BIND-61).
const COALESCE_DELAY: Duration = Duration::from_millis(250);

/// Runs in every replica, leader or not, so that the caches stay warm (FW-11).
#[derive(Clone)]
pub struct Operator {
    pub context: Arc<Context>,
    pub queue: WorkQueue<WorkItem>,
    /// How often actors are resynced.
    pub requeue_policy: RequeuePolicy,
    /// How often queues are checked and their messages counted.
    pub schedule: CheckIntervals,
    /// Conditions of `/readyz`.
    pub readiness: Readiness,
    /// Tasks that must not end.
    pub tasks: Tasks,
}

impl Operator {
    /// Refreshes the gauges of queue and stores before each scrape.
    pub fn register_gauges(&self) {
        let operator = self.clone();
        self.context.metrics.watch_queue(&self.queue);
        self.context.metrics.before_scrape(move |metrics| {
            let Context {
                stores,
                depths,
                workloads,
                creation_failures,
                config_maps,
                service_accounts,
                scaled_objects,
                trigger_authentications,
                bindings,
                keda,
                ..
            } = &*operator.context;
            let transports = operator.context.installation.transports.iter();
            let transports = transports.map(|transport| &*transport.name);
            actor_gauges::update(&stores.actors, transports, metrics);
            operator.report_unsynced_namespaces();
            depths.publish(metrics);
            metrics.records("AsyncActor", stores.actors.len());
            metrics.records("Deployment", workloads.deployments.store.len());
            metrics.records("StatefulSet", workloads.stateful_sets.store.len());
            metrics.records("HorizontalPodAutoscaler", stores.hpas.len());
            metrics.records("Pod", stores.pods.len());
            metrics.records("Event", stores.mount_failures.len());
            metrics.records(
                &StatefulSetFailureRecord::kind_name(),
                creation_failures.len(),
            );
            metrics.records("ConfigMap", config_maps.objects.store.len());
            metrics.records("ServiceAccount", service_accounts.store.len());
            metrics.records("ScaledObject", scaled_objects.store.len());
            metrics.records("TriggerAuthentication", trigger_authentications.store.len());
            let crds = keda.crds.iter().map(|crd| crd.len()).sum();
            metrics.records("CustomResourceDefinition", crds);
            for (kind, count) in bindings.sizes() {
                metrics.records(&kind, count);
            }
        });
    }

    fn report_unsynced_namespaces(&self) {
        let context = &self.context;
        let mut namespaces = context.stores.actors.namespaces();
        namespaces.retain(|namespace| !all_synced(context, namespace));
        let namespaces = namespaces.iter().map(|namespace| &**namespace);
        context.metrics.unsynced_namespaces(namespaces);
    }

    /// Enqueues work on the leader only. A standby processes nothing, and a new leader enqueues everything (SAFE-37).
    pub(super) fn enqueue(&self, work: WorkItem) {
        self.enqueue_at(work, Instant::now());
    }

    fn enqueue_at(&self, work: WorkItem, when: Instant) {
        if self.context.leading_since.get().is_some() {
            self.queue.enqueue_at(work, when);
        }
    }

    /// Refreshes claims first: the actor may have claimed a queue name, or given it up.
    pub fn on_actor_change(&self, enqueue: Enqueue) {
        if let Enqueue::Actor(key) = &enqueue {
            self.refresh_indexes(key);
        }
        self.on_change(enqueue);
    }

    /// Updates the actor's claims and bindings, and enqueues the other actors that this affects.
    fn refresh_indexes(&self, key: &Key) {
        let Context {
            bindings,
            queue_claims,
            installation,
            stores,
            ..
        } = &*self.context;
        let actor = stores.actors.get(key);
        for affected in bindings.refresh(key, actor.as_deref()) {
            self.enqueue(WorkItem::Actor(affected));
        }
        for affected in bindings.probe_schedule.take_unblocked() {
            self.enqueue(WorkItem::Actor(affected));
        }
        for affected in queue_claims.refresh(&installation.transports, key, actor.as_deref()) {
            self.enqueue(WorkItem::Actor(affected));
        }
    }

    /// Enqueues the actors that have waited longest for a rollout slot that is free now.
    fn enqueue_next_rollouts(&self) {
        let bound = self.context.rollout_slots.dequeue_waiting(clock::now());
        let standalone = self.context.workload_rollouts.dequeue_waiting();
        for next in bound.into_iter().chain(standalone) {
            self.enqueue(WorkItem::Actor(next));
        }
    }

    /// Drops the records and claims of namespaces that are no longer watched.
    pub fn forget_all_but(&self, scopes: &BTreeSet<WatchScope>) {
        let context = &self.context;
        for key in context.stores.actors.retain_scopes(scopes) {
            let transports = &context.installation.transports;
            context.queue_claims.refresh(transports, &key, None);
            context.forget(&key);
            context.bindings.refresh(&key, None);
        }
        context.workloads.deployments.store.retain_scopes(scopes);
        context.workloads.stateful_sets.store.retain_scopes(scopes);
        context.config_maps.retain_scopes(scopes);
        context.service_accounts.store.retain_scopes(scopes);
        context.scaled_objects.store.retain_scopes(scopes);
        context.trigger_authentications.store.retain_scopes(scopes);
        context.stores.hpas.retain_scopes(scopes);
        context.stores.pods.retain_scopes(scopes);
        context.bindings.labelled_pods.forget_all_but(scopes);
        context.stores.mount_failures.retain_scopes(scopes);
    }

    /// Enqueues actors when KEDA is installed or removed.
    pub fn on_keda_crd_change(&self, enqueue: Enqueue) {
        if self.context.keda.refresh() {
            self.on_change(enqueue);
        }
    }

    /// Enqueues the actors that a change affects.
    pub fn on_change(&self, enqueue: Enqueue) {
        match enqueue {
            Enqueue::Actor(key) => self.enqueue(WorkItem::Actor(key)),
            Enqueue::Namespace(namespace) => {
                self.context.bindings.changed().notify_one();
                for key in self.context.stores.actors.keys_in(&namespace) {
                    self.enqueue(WorkItem::Actor(key));
                }
                if self.context.runtime_script.is_runtime_namespace(&namespace) {
                    self.enqueue(WorkItem::RuntimeScript);
                }
            }
            Enqueue::AllActors => {
                self.context.bindings.changed().notify_one();
                for key in self.context.stores.actors.keys() {
                    self.enqueue(WorkItem::Actor(key));
                }
            }
            Enqueue::Nothing => {}
        }
    }

    /// Enqueues the actor that a change of a bound object affects, with a delay, so that a burst of changes causes one
    /// reconcile.
    pub fn on_bound_object_change(&self, enqueue: Enqueue) {
        if let Enqueue::Actor(actor) = enqueue {
            self.enqueue_at(WorkItem::Actor(actor), Instant::now() + COALESCE_DELAY);
        }
    }

    /// A (potential) autoscaler also affects the actors that bind the target it scales (SO-3).
    pub fn on_autoscaler_change(&self, enqueue: Enqueue) {
        if let Enqueue::Actor(key) = &enqueue {
            for actor in self.context.bindings.actors_scaling(key) {
                self.enqueue(WorkItem::Actor(actor));
            }
        }
        self.on_change(enqueue);
    }

    /// Enqueues everything. A status update enqueues nothing, so refresh the claims of all actors before the first
    /// reconcile (QUE-3).
    fn start_leading(&self) {
        self.context.leading_since.get_or_init(clock::now);
        self.context.metrics.leads();
        let actors = &self.context.stores.actors;
        for key in actors.keys() {
            self.refresh_indexes(&key);
        }
        self.enqueue(WorkItem::RuntimeScript);
        for key in actors.keys() {
            self.enqueue(WorkItem::Actor(key));
        }
    }

    /// Reconciles until the queue is closed, beginning with every known actor (FW-4).
    pub async fn lead(self) {
        let health = HealthCheck {
            observer: self.context.brokers.clone(),
            depths: Arc::clone(&self.context.depths),
            failures: CheckFailures::default(),
            intervals: self.schedule,
            source: self.clone(),
        };
        let operator = self;
        let Self {
            queue,
            requeue_policy,
            ..
        } = operator.clone();
        let context = Arc::clone(&operator.context);
        operator.start_leading();
        let run = move |work: WorkItem, attempt| {
            let operator = operator.clone();
            async move {
                let actor = work.actor().cloned();
                let outcome = worker::run(&operator.context, work, attempt, requeue_policy).await;
                // Our own status update causes no event, so refresh the claims here.
                if let Some(actor) = actor {
                    operator.refresh_indexes(&actor);
                }
                operator.enqueue_next_rollouts();
                outcome
            }
        };
        tokio::select! {
            // In a fixed order, so that simulations are deterministic.
            biased;
            () = queue.run(run) => {}
            () = health.run() => {}
            () = shared_config_maps::sweep(context) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
