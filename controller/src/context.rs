//! What every reconcile works with.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asya_shared::config::{Settings, TransportsConfig};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use crate::binding::Bindings;
use crate::binding::rollout_slots::RolloutSlots;
use crate::broker::Brokers;
use crate::broker::claims::Claims;
use crate::broker::depths::Depths;
use crate::broker::health::QueueRechecks;
use crate::broker::looks::RetiredQueueSchedule;
use crate::cluster::config_maps::ConfigMaps;
use crate::cluster::impersonation::Applier;
use crate::cluster::keda::Keda;
use crate::cluster::objects::Objects;
use crate::cluster::rollouts::Rollouts;
use crate::cluster::store::Store;
use crate::cluster::strangers::ForeignNames;
use crate::cluster::workload::Workloads;
use crate::pods::mounts::Mounts;
use crate::pods::refusals::Refusals;
use crate::record::{
    ActorRecord, ChildRecord, HpaRecord, Key, PodRecord, ScaledObjectRecord, TriggerAuthentication,
};
use crate::runtime_script::config_map::RuntimeScript;
use crate::telemetry::events::Events;
use crate::telemetry::metrics::Metrics;

/// What every pass works with.
pub struct Context {
    /// The API server, behind the fence.
    pub client: Client,
    /// Under whose account children are applied.
    pub applier: Applier,
    /// What the watches have shown.
    pub stores: Stores,
    /// How the operator is configured.
    pub installation: Installation,
    /// When this process began to lead.
    pub leading_since: OnceLock<Timestamp>,
    /// Workloads of both kinds.
    pub workloads: Workloads,
    /// Pods that `StatefulSet`s are not allowed to make.
    pub refusals: Arc<Refusals>,
    /// Actors' `ServiceAccount`s.
    pub service_accounts: Objects<ChildRecord<ServiceAccount>>,
    /// All `ScaledObject`s, ours and others'.
    pub scaled_objects: Objects<ScaledObjectRecord>,
    /// What they log in to brokers with.
    pub trigger_authentications: Objects<ChildRecord<TriggerAuthentication>>,
    /// Whether KEDA is there.
    pub keda: Keda,
    /// `ConfigMap`s that the actors of a namespace share.
    pub config_maps: ConfigMaps,
    /// Who owns which queue's name.
    pub claims: Claims,
    /// Who binds what.
    pub bindings: Arc<Bindings>,
    /// Whose targets are being rolled.
    pub rollout_slots: RolloutSlots,
    /// Whose workloads of ours are, because the installation changed.
    pub rollouts: Rollouts,
    /// The brokers' clients.
    pub brokers: Brokers,
    /// Whose queue must be looked at, whatever status says.
    pub queue_rechecks: QueueRechecks,
    /// When retired queues are looked at.
    pub retired_queue_schedule: RetiredQueueSchedule,
    /// Messages in the queues.
    pub depths: Arc<Depths>,
    /// The runtime script in the actors' namespaces.
    pub runtime: RuntimeScript,
    /// Events on actors.
    pub events: Events,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Context {
    /// Drops what is remembered of an actor that is gone, or that nobody looks after any more.
    pub fn forget(&self, key: &Key) {
        self.queue_rechecks.forget(key);
        self.retired_queue_schedule.forget(key);
        self.depths.forget(key);
        self.rollout_slots.forget(key);
        self.rollouts.forget(key);
        self.stores.foreign_names.forget(key);
    }
}

/// What is the same for all actors.
pub struct Installation {
    /// The configured brokers.
    pub transports: TransportsConfig,
    /// What pods get from the installation.
    pub settings: Settings,
    /// Hash of the runtime script: pods carry it, so that a new script rolls them (RUN-4).
    pub runtime_hash: String,
    /// Hash of script and adapters, which pods of bindings mount (ROLL-8).
    pub scripts_hash: String,
    /// The operator's own namespace, in which nothing is bound.
    pub namespace: String,
    /// Whether the webhook is kept that puts the sidecar into pods of bindings.
    pub webhook: bool,
    /// Whether queues are ours to create, change and delete (QUE-12).
    pub queues_managed: bool,
    /// How long what may pass may last.
    pub deadlines: Deadlines,
}

/// After how long what may pass by itself counts, and is done again; `None` is never.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// A pod runs and is not ready (STA-4, row 12).
    pub unready: Option<Duration>,
    /// An HPA has no metrics (KEDA-10).
    pub hpa_metrics: Option<Duration>,
    /// What is waited after what we wrote to a bound target was taken back, doubled with each time (CONF-6).
    pub conflict: Duration,
}

/// Records of what a pass reads and never writes but by patches of an actor.
pub struct Stores {
    /// The actors.
    pub actors: Arc<Store<ActorRecord>>,
    /// Their pods.
    pub pods: Arc<Store<PodRecord>>,
    /// Volumes that these cannot mount.
    pub mounts: Arc<Mounts>,
    /// All HPAs, KEDA's and others'.
    pub hpas: Arc<Store<HpaRecord>>,
    /// Whose children's names are taken by objects of others.
    pub foreign_names: ForeignNames,
}

impl Default for Stores {
    fn default() -> Self {
        let pods = Arc::default();
        Self {
            actors: Arc::default(),
            mounts: Arc::new(Mounts::of(&pods)),
            pods,
            hpas: Arc::default(),
            foreign_names: ForeignNames::default(),
        }
    }
}
