//! One pass over one actor: observe, plan, apply, report.

mod apply;
mod authorization;
mod bound_pods;
mod conflict;
mod desired;
mod error;
mod exhausted;
mod injection;
mod observe;
mod plan;
mod pods;
mod reason;
mod report;
mod sight;
mod state;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use asya_shared::config::{Settings, TransportsConfig};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use crate::applier::Applier;
use crate::binding::Bindings;
use crate::binding::slots::Slots;
use crate::claims::Claims;
use crate::config_maps::ConfigMaps;
use crate::events::Events;
use crate::keda::Keda;
use crate::metrics::Metrics;
use crate::mounts::Mounts;
use crate::objects::Objects;
use crate::queue::Brokers;
use crate::queue::depths::Depths;
use crate::queue::health::Doubts;
use crate::queue::looks::Looks;
use crate::record::{
    ActorRecord, ChildRecord, HpaRecord, Key, PodRecord, ScaledObjectRecord, TriggerAuthentication,
    WorkloadRecord,
};
use crate::rollouts::Rollouts;
use crate::runtime::RuntimeScript;
use crate::store::Store;
use crate::strangers::Strangers;
use crate::work_queue::Attempt;
use crate::workload::Workloads;

pub use apply::shared;
pub use conflict::Part;
pub use conflict::ledger::part_of;
pub use error::Error;
pub(crate) use error::{may_be_taken, refused};
pub use observe::Child;
pub use plan::{Step, not_owned, plan_child};
pub use reason::{Failure, Fault, Reason, Retry};

/// An API server that fails so often in a row is told in the status of the actor that it keeps from its children.
const TOLD_AFTER: u32 = 2;

/// Whether what ended a pass is told. What may pass by itself has to last first; who may not delete a child of an actor
/// that goes learns that at once.
fn is_told(error: &Error, failures: u32, deleting: bool) -> bool {
    failures >= TOLD_AFTER || (deleting && error.retry() == Retry::Slowly)
}

/// From one look at a workload that no watch shows to the next.
const UNSEEN: Duration = Duration::from_secs(2);

/// When to look again at a workload of which something is expected; `None`: its watch tells.
fn unseen(workload: &WorkloadRecord) -> Option<Duration> {
    (!workload.metadata.labelled).then_some(UNSEEN)
}

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
    pub slots: Slots,
    /// Whose workloads of ours are, because the installation changed.
    pub rollouts: Rollouts,
    /// The brokers' clients.
    pub brokers: Brokers,
    /// Whose queue must be looked at, whatever status says.
    pub doubts: Doubts,
    /// When retired queues are looked at.
    pub looks: Looks,
    /// Messages in the queues.
    pub depths: Arc<Depths>,
    /// The runtime script in the actors' namespaces.
    pub runtime: RuntimeScript,
    /// Events on actors.
    pub events: Events,
    /// Counters.
    pub metrics: Arc<Metrics>,
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
    pub strangers: Strangers,
}

impl Default for Stores {
    fn default() -> Self {
        let pods = Arc::default();
        Self {
            actors: Arc::default(),
            mounts: Arc::new(Mounts::of(&pods)),
            pods,
            hpas: Arc::default(),
            strangers: Strangers::default(),
        }
    }
}

/// Brings one actor a step closer to what it asks for. Answers when to look again; `None` when it is gone.
///
/// A fault of the actor, its workload or its broker is a state, told in its conditions. After the `last`
/// attempt a fault that was not tried again would stay: it says so.
///
/// # Errors
/// When nothing could be told either: the API server does not answer, or we no longer lead.
pub async fn reconcile(
    context: &Context,
    key: &Key,
    attempt: Attempt,
) -> Result<Option<Retry>, Error> {
    if let Some(retry) = context.is_blind(key) {
        return Ok(Some(retry));
    }
    let Some(mut observed) = observe::observe(context, key, Timestamp::now()).await? else {
        return Ok(None);
    };
    let now = Timestamp::now();
    let plan = plan::plan(&observed, now);
    if plan.is_the_end() {
        report::announce_end(context, &mut observed, now).await?;
    }
    let mut outcome = match apply::apply(context, &observed, plan).await {
        // A status that stays empty helps nobody, whosever fault it is (STA-7).
        Err(error) if is_told(&error, attempt.failures, observed.actor.metadata.deleting) => {
            apply::interrupted(&observed, error)?
        }
        applied => applied?,
    };
    if let Some(met) = outcome.met_stranger() {
        context.stores.strangers.saw(key, met);
    }
    if attempt.last {
        exhausted::give_up(&mut outcome);
    }
    let retry = report::report(context, &observed, &outcome, now).await?;
    match outcome.interrupted() {
        Some(error) => Err(error),
        None => Ok(Some(retry)),
    }
}
