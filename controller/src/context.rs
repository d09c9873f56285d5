//! The context of every reconcile.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asya_shared::config::{Settings, TransportsConfig};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use crate::binding::Bindings;
use crate::binding::deleted::DeletedBindings;
use crate::binding::lost_scaled_objects::LostScaledObjects;
use crate::binding::rollout_slots::RolloutSlots;
use crate::broker::Brokers;
use crate::broker::depths::Depths;
use crate::broker::queue_claims::QueueClaims;
use crate::broker::rechecks::QueueRechecks;
use crate::broker::retired_queue_schedule::RetiredQueueSchedule;
use crate::broker::unrecorded_queues::UnrecordedQueues;
use crate::cluster::config_maps::ConfigMaps;
use crate::cluster::foreign_names::ForeignNames;
use crate::cluster::impersonation::Impersonation;
use crate::cluster::keda::Keda;
use crate::cluster::objects::Objects;
use crate::cluster::rollouts::WorkloadRollouts;
use crate::cluster::store::Store;
use crate::cluster::workload::WorkloadApi;
use crate::pods::creation_failures::PodCreationFailures;
use crate::pods::mount_failures::MountFailures;
use crate::record::{
    ActorRecord, ChildRecord, HpaRecord, Key, PodRecord, ScaledObjectRecord, TriggerAuthentication,
};
use crate::runtime_script::config_map::RuntimeScript;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::Metrics;

/// Clients, caches and shared state of every reconcile.
pub struct Context {
    /// Client of the API server; fenced, so that only the leader writes.
    pub client: Client,
    /// Applies children, with impersonation if that is enabled.
    pub impersonation: Impersonation,
    /// Caches filled by the watches.
    pub stores: Stores,
    pub installation: Installation,
    /// When this process became leader; unset on a standby.
    pub leading_since: OnceLock<Timestamp>,
    /// Deployments and `StatefulSet`s of actors.
    pub workloads: WorkloadApi,
    /// Pods that `StatefulSet`s cannot create.
    pub creation_failures: Arc<PodCreationFailures>,
    /// Actors' `ServiceAccount`s.
    pub service_accounts: Objects<ChildRecord<ServiceAccount>>,
    /// All `ScaledObject`s, including foreign ones.
    pub scaled_objects: Objects<ScaledObjectRecord>,
    /// `TriggerAuthentication`s with which KEDA logs in to the brokers.
    pub trigger_authentications: Objects<ChildRecord<TriggerAuthentication>>,
    /// Whether KEDA is installed.
    pub keda: Keda,
    /// `ConfigMap`s shared by the actors of a namespace.
    pub config_maps: ConfigMaps,
    /// Which actor holds which queue name.
    pub queue_claims: QueueClaims,
    /// Which actor binds which target.
    pub bindings: Arc<Bindings>,
    /// Bindings that were deleted recently.
    pub deleted_bindings: DeletedBindings,
    /// Bindings whose `ScaledObject` disappeared together with KEDA.
    pub lost_scaled_objects: LostScaledObjects,
    /// Limits concurrent rollouts of bound targets.
    pub rollout_slots: RolloutSlots,
    /// Limits concurrent rollouts of our own workloads when the installation changes.
    pub workload_rollouts: WorkloadRollouts,
    pub brokers: Brokers,
    /// Actors whose queue must be verified again, whatever their status says.
    pub queue_rechecks: QueueRechecks,
    /// When retired queues are due for a check.
    pub retired_queue_schedule: RetiredQueueSchedule,
    /// Queues that no status names yet.
    pub unrecorded_queues: UnrecordedQueues,
    /// Message counts of the queues.
    pub depths: Arc<Depths>,
    /// Keeps the runtime script in the actors' namespaces.
    pub runtime_script: RuntimeScript,
    pub events: Events,
    pub metrics: Arc<Metrics>,
}

/// The parts of a context, apart from its caches and memory, which start empty.
pub struct ContextParts {
    /// Fenced, so that only the leader writes.
    pub client: Client,
    pub impersonation: Impersonation,
    pub installation: Installation,
    pub brokers: Brokers,
    pub runtime_script: RuntimeScript,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    /// How many bound targets may be rolled out at once.
    pub max_rollouts: usize,
    /// How many of our own workloads may be rolled out at once when the installation changes.
    pub max_workload_rollouts: usize,
    /// Time between checks of a retired queue.
    pub retired_queue_interval: Duration,
}

impl Context {
    /// A context whose caches and memory are empty.
    pub fn new(parts: ContextParts) -> Self {
        let impersonation = &parts.impersonation;
        let workloads = WorkloadApi::new(impersonation);
        Self {
            stores: Stores::default(),
            leading_since: OnceLock::new(),
            installation: parts.installation,
            creation_failures: Arc::new(PodCreationFailures::new(&workloads.stateful_sets.store)),
            workloads,
            service_accounts: Objects::new(impersonation),
            scaled_objects: Objects::new(impersonation),
            trigger_authentications: Objects::new(impersonation),
            keda: Keda::default(),
            config_maps: ConfigMaps::new(impersonation),
            queue_claims: QueueClaims::default(),
            bindings: Arc::default(),
            deleted_bindings: DeletedBindings::default(),
            lost_scaled_objects: LostScaledObjects::default(),
            rollout_slots: RolloutSlots::new(parts.max_rollouts),
            workload_rollouts: WorkloadRollouts::new(parts.max_workload_rollouts),
            brokers: parts.brokers,
            queue_rechecks: QueueRechecks::default(),
            retired_queue_schedule: RetiredQueueSchedule::new(parts.retired_queue_interval),
            unrecorded_queues: UnrecordedQueues::default(),
            depths: Arc::default(),
            runtime_script: parts.runtime_script,
            events: parts.events,
            metrics: parts.metrics,
            impersonation: parts.impersonation,
            client: parts.client,
        }
    }

    /// Drops all state of an actor that was deleted or is no longer watched.
    pub fn forget(&self, key: &Key) {
        self.queue_rechecks.forget(key);
        self.retired_queue_schedule.forget(key);
        self.unrecorded_queues.forget(key);
        self.depths.forget(key);
        self.lost_scaled_objects.forget(key);
        self.rollout_slots.forget(key);
        self.workload_rollouts.forget(key);
        self.stores.foreign_names.forget(key);
    }
}

/// Settings that are the same for all actors.
pub struct Installation {
    pub transports: TransportsConfig,
    /// Settings of the installation for pods.
    pub settings: Settings,
    /// Hash of the runtime script. Pods carry it, so that a new script rolls them (RUN-4).
    pub runtime_hash: String,
    /// Hash of the runtime script and the adapters, which pods of bindings mount (ROLL-8).
    pub scripts_hash: String,
    /// The operator's own namespace, where nothing is bound.
    pub namespace: String,
    /// Whether the operator configures the webhook that injects the sidecar into pods of bindings.
    pub webhook: bool,
    /// Whether the operator may create, change and delete queues (QUE-12).
    pub queues_managed: bool,
    pub deadlines: Deadlines,
}

/// How long states that may resolve by themselves are tolerated; `None` means forever.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// A running pod that is not ready (STA-4, row 12).
    pub unready: Option<Duration>,
    /// An HPA without metrics (KEDA-10).
    pub hpa_metrics: Option<Duration>,
    /// Wait before writing to a bound target again after our change was reverted; doubled each time (CONF-6).
    pub conflict_backoff: Duration,
}

/// Caches of objects that a reconcile reads and, except for patches of an actor, never writes.
pub struct Stores {
    pub actors: Arc<Store<ActorRecord>>,
    /// Pods of the actors.
    pub pods: Arc<Store<PodRecord>>,
    /// Volumes that these pods cannot mount.
    pub mount_failures: Arc<MountFailures>,
    /// All HPAs, including KEDA's and foreign ones.
    pub hpas: Arc<Store<HpaRecord>>,
    /// Actors whose children's names are taken by foreign objects.
    pub foreign_names: ForeignNames,
}

impl Default for Stores {
    fn default() -> Self {
        let pods = Arc::default();
        Self {
            actors: Arc::default(),
            mount_failures: Arc::new(MountFailures::new(&pods)),
            pods,
            hpas: Arc::default(),
            foreign_names: ForeignNames::default(),
        }
    }
}
