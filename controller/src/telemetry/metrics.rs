//! The metrics served at `/metrics` (OPS-4, FW-15).

mod reconcile;
#[cfg(test)]
mod tests;
mod watch_health;

use asya_process::metrics::{ExposedMetrics, Gauges, add};
use asya_shared::api::PodCounts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::record::Key;

use reconcile::{ReconcileMetrics, WorkQueueMetrics};
use watch_health::FailingWatches;

pub use watch_health::WatchHealth;

/// Name of the controller in the labels that all controllers have.
const CONTROLLER: &str = "asyncactor";

type Labels<const N: usize> = [(&'static str, String); N];

pub struct Metrics {
    registry: Registry,
    gauges: Gauges<Self>,
    reconciles: ReconcileMetrics,
    queue: WorkQueueMetrics,
    /// Labels: `kind`: `stale`, `broker_busy`, `api_throttled`, `api_failed`, `api_refused`, `api_unreachable`,
    /// `fenced` or `Unfinished`.
    reconcile_failures: Family<Labels<1>, Counter>,
    /// Labels: `transport`; `status`: the value of STATUS.
    actors: Family<Labels<2>, Gauge>,
    /// Labels: `namespace`, `actor`; `state`: `queued` or `processing`.
    queue_messages: Family<Labels<3>, Gauge>,
    /// Labels: `namespace`, `actor`; `state`: `injected`, `not_injected` or `outdated`.
    bound_pods: Family<Labels<3>, Gauge>,
    /// Labels: `transport`; `operation`: for example `create`, `attributes` or `delete`; `result`: the kind of
    /// response, or the reason of a failure as in condition `TransportReady`.
    broker_requests: Family<Labels<3>, Counter>,
    /// Labels: `transport`.
    transport_up: Family<Labels<1>, Gauge>,
    api_writes: Counter,
    leading: Gauge,
    undecodable: Gauge,
    unverified: Gauge,
    /// Labels: `namespace`, `actor`.
    rollout_halted: Family<Labels<2>, Gauge>,
    /// Labels: `namespace`, `actor`; `field`: `part` of the entry in `status.conflicts`, for example `Roll` or
    /// `Template`.
    conflicts: Family<Labels<3>, Counter>,
    /// Labels: `kind`: the watched kind.
    watch_healthy: Family<Labels<1>, Gauge>,
    failing_watches: FailingWatches,
    /// Labels: `namespace`.
    unsynced_namespaces: Family<Labels<1>, Gauge>,
    /// Labels: `kind`: the watched kind.
    records: Family<Labels<1>, Gauge>,
    /// Labels: `kind`: the watched kind.
    events_received: Family<Labels<1>, Counter>,
    /// Labels: `kind`: the watched kind.
    events_dropped: Family<Labels<1>, Counter>,
    /// Labels: `object`: the name of the webhook configuration.
    config_restores: Family<Labels<1>, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all metrics. Series whose labels are known in advance are exposed from the start, with 0.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let controller = || ("controller".into(), CONTROLLER.into());
        let name = ("name".into(), CONTROLLER.into());
        let reconciles = ReconcileMetrics::new(registry.sub_registry_with_label(controller()));
        let queue = [name, controller()].into_iter();
        let queue = WorkQueueMetrics::new(registry.sub_registry_with_labels(queue));
        // Prefixed like the webhook's metrics, because it counts restores of the webhook's configurations.
        let config_restores = add(
            registry.sub_registry_with_prefix("asya_webhook"),
            "config_heals",
            "Webhook configurations that were restored",
        );
        let own = registry.sub_registry_with_prefix("asya_operator");
        Self {
            reconciles,
            queue,
            reconcile_failures: add(own, "pass_failures", "Failed reconciles by kind of error"),
            actors: add(own, "actors", "Actors by transport and status"),
            queue_messages: add(own, "queue_messages", "Messages in actors' queues by state"),
            bound_pods: add(own, "bound_pods", "Pods of bindings by state"),
            broker_requests: add(own, "broker_requests", "Requests to brokers"),
            transport_up: add(
                own,
                "transport_up",
                "1 if the transport's broker responds to any client",
            ),
            api_writes: add(own, "api_writes", "Write requests to the API server"),
            leading: add(
                own,
                "leading",
                "1 on the replica that reconciles actors: it holds the lease, and is ready",
            ),
            undecodable: add(own, "undecodable_objects", "Actors that cannot be decoded"),
            unverified: add(
                own,
                "unproved_bindings",
                "Required bindings whose dry-run pods do not come back with the sidecar",
            ),
            rollout_halted: add(
                own,
                "rollout_halted",
                "1 for a binding whose rollout is halted",
            ),
            conflicts: add(
                own,
                "conflicts",
                "Contested writes: how often another manager reverted what was written for a binding, or keeps changing an object of a standalone actor",
            ),
            watch_healthy: add(own, "watch_healthy", "1 if no watch of the kind fails"),
            failing_watches: FailingWatches::default(),
            unsynced_namespaces: add(
                own,
                "namespace_unsynced",
                "1 for a watched namespace whose actors are not reconciled, because its objects have not been listed",
            ),
            records: add(own, "records", "Objects of the kind held in memory"),
            events_received: add(own, "events_received", "Watch events of the kind"),
            events_dropped: add(own, "events_dropped", "Watch events that changed nothing"),
            config_restores,
            registry,
            gauges: Gauges::default(),
        }
    }

    /// Sets the number of actors by transport and status, and drops all other series.
    pub fn actors<'a>(&self, counts: impl IntoIterator<Item = (&'a str, &'a str, usize)>) {
        self.actors.clear();
        for (transport, status, count) in counts {
            let labels = [
                ("transport", transport.to_owned()),
                ("status", status.to_owned()),
            ];
            self.actors.get_or_create(&labels).set(gauge(count));
        }
    }

    /// Sets the queued and processing messages of each actor, and drops all other series.
    pub fn queue_messages<'a>(&self, depths: impl IntoIterator<Item = (&'a Key, u64, u64)>) {
        self.queue_messages.clear();
        for (actor, queued, processing) in depths {
            for (state, count) in [("queued", queued), ("processing", processing)] {
                let labels = [
                    ("namespace", actor.namespace.to_string()),
                    ("actor", actor.name.to_string()),
                    ("state", state.to_owned()),
                ];
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.queue_messages.get_or_create(&labels).set(count);
            }
        }
    }

    /// Sets the pods of each binding, and drops all other series.
    pub fn bound_pods<'a>(&self, bindings: impl IntoIterator<Item = (&'a Key, &'a PodCounts)>) {
        self.bound_pods.clear();
        for (actor, pods) in bindings {
            for (state, count) in [
                ("injected", pods.injected),
                ("not_injected", pods.not_injected),
                ("outdated", pods.outdated),
            ] {
                let labels = [
                    ("namespace", actor.namespace.to_string()),
                    ("actor", actor.name.to_string()),
                    ("state", state.to_owned()),
                ];
                self.bound_pods.get_or_create(&labels).set(count.into());
            }
        }
    }

    /// Counts the restore of a webhook configuration (CFG-9).
    pub fn config_restored(&self, object: &str) {
        let labels = [("object", object.to_owned())];
        self.config_restores.get_or_create(&labels).inc();
    }

    /// Counts a request to a broker, whether or not it responded.
    pub fn broker_request(&self, transport: &str, operation: &str, result: &str) {
        let labels = [
            ("transport", transport.to_owned()),
            ("operation", operation.to_owned()),
            ("result", result.to_owned()),
        ];
        self.broker_requests.get_or_create(&labels).inc();
    }

    /// Sets whether a transport's broker responds to any client.
    pub fn transport_up(&self, transport: &str, up: bool) {
        let labels = [("transport", transport.to_owned())];
        self.transport_up.get_or_create(&labels).set(i64::from(up));
    }

    /// Drops the series of a transport that no actor uses: no call would ever show that its broker responds again.
    pub fn forget_transport(&self, transport: &str) {
        let labels = [("transport", transport.to_owned())];
        self.transport_up.remove(&labels);
    }

    /// The counter of writes to the API server, for [`crate::cluster::fence::FenceLayer`].
    #[must_use]
    pub fn api_writes(&self) -> Counter {
        self.api_writes.clone()
    }

    /// Records that this replica leads, until it ends.
    pub fn leads(&self) {
        self.leading.set(1);
    }

    /// Sets the number of actors that cannot be decoded.
    pub fn undecodable(&self, count: usize) {
        self.undecodable.set(gauge(count));
    }

    /// Sets the number of required bindings whose dry-run pods are not injected (CFG-8).
    pub fn set_unverified_bindings(&self, count: usize) {
        self.unverified.set(gauge(count));
    }

    /// Sets the bindings whose rollout is halted, and drops all other series (ROLL-5).
    pub fn rollouts_halted<'a>(&self, actors: impl IntoIterator<Item = &'a Key>) {
        self.rollout_halted.clear();
        for actor in actors {
            let labels = [
                ("namespace", actor.namespace.to_string()),
                ("actor", actor.name.to_string()),
            ];
            self.rollout_halted.get_or_create(&labels).set(1);
        }
    }

    /// Sets how often each field of each binding was reverted, and drops all other series.
    pub fn conflicts<'a>(&self, counts: impl IntoIterator<Item = (&'a Key, &'static str, u64)>) {
        self.conflicts.clear();
        for (actor, field, count) in counts {
            let labels = [
                ("namespace", actor.namespace.to_string()),
                ("actor", actor.name.to_string()),
                ("field", field.to_owned()),
            ];
            self.conflicts.get_or_create(&labels).inc_by(count);
        }
    }

    /// Sets whether all watches of a kind are healthy.
    fn watch_healthy(&self, kind: &str, healthy: bool) {
        self.watch_healthy
            .get_or_create(&kind_label(kind))
            .set(i64::from(healthy));
    }

    /// Sets the watched namespaces whose actors are not reconciled yet, and drops all other series (FW-12).
    pub fn unsynced_namespaces<'a>(&self, namespaces: impl IntoIterator<Item = &'a str>) {
        self.unsynced_namespaces.clear();
        for namespace in namespaces {
            let labels = [("namespace", namespace.to_owned())];
            self.unsynced_namespaces.get_or_create(&labels).set(1);
        }
    }

    /// Sets the number of cached objects of a kind.
    pub fn records(&self, kind: &str, count: usize) {
        self.records
            .get_or_create(&kind_label(kind))
            .set(gauge(count));
    }

    /// Counts a watch event of a kind.
    pub fn watch_event(&self, kind: &str) {
        self.events_received.get_or_create(&kind_label(kind)).inc();
    }

    /// Counts a watch event of a kind that changed nothing.
    pub fn watch_event_dropped(&self, kind: &str) {
        self.events_dropped.get_or_create(&kind_label(kind)).inc();
    }
}

impl ExposedMetrics for Metrics {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn gauges(&self) -> &Gauges<Self> {
        &self.gauges
    }
}

fn kind_label(kind: &str) -> Labels<1> {
    [("kind", kind.to_owned())]
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
