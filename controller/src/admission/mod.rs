//! Reconciles the webhook configurations with the bindings (docs/spec/admission.md, section 4). Runs on the leader
//! only.
//!
//! [`asya_shared::admission`] renders the desired configurations. This module decides when to apply them: when a
//! binding, a trusted CA, the owner `ClusterRole`, the facts or one of the configurations changes. In a steady state it
//! sends no reads and no writes.

mod bindings;
mod ca_propagation;
mod facts;
pub mod flags;
mod injection_probe;
mod owner_role;
mod restore_backoff;
mod watched_store;
mod webhook_configs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use asya_process::tasks::Tasks;
use asya_shared::admission::facts::WebhookFacts;
use asya_shared::admission::{self, Endpoint, EntrySettings, OwnerRole, UnenforcedBinding};
use asya_shared::backoff::Backoff;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use self::bindings::WebhookBinding;
use self::ca_propagation::CaPropagation;
use self::facts::FactsConfigMap;
use self::injection_probe::{FinishedProbe, InjectionProbes};
use self::owner_role::OwnerRoleCache;
use self::webhook_configs::{DesiredConfig, ObjectOutcome, WebhookConfigs};
use crate::certificates::trust::SharedTrust;
use crate::cluster::store::KnownNamespaces;
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::Key;
use crate::telemetry::events::EventReason;
use crate::work_queue::WorkQueue;

/// Coalesces a burst of changes into one apply (CFG-1).
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Minimum pause between two writes, even while another controller keeps reverting them (CFG-9).
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Base of the exponential backoff after a failed reconcile.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// How soon to retry while the actor cache is not synced: a list that completes triggers a reconcile, one that fails
/// does not.
const NOT_SYNCED_RETRY: Duration = Duration::from_secs(10);

/// How long to wait if nothing is scheduled: a change triggers the next reconcile.
const IDLE_WAIT: Duration = Duration::from_hours(24);

/// Combined outcome of applying all objects.
#[derive(Default)]
struct ApplySummary {
    wrote: bool,
    /// Why objects could not be applied. The others are.
    failures: Vec<String>,
    /// When the next reconcile is due even without a change.
    due: Option<Instant>,
}

impl ApplySummary {
    fn add(&mut self, outcome: Result<ObjectOutcome, String>) {
        match outcome {
            Ok(ObjectOutcome::Unchanged) => {}
            Ok(ObjectOutcome::Written) => self.wrote = true,
            Ok(ObjectOutcome::Deferred(at)) => self.requeue_at(Some(at)),
            Err(reason) => self.failures.push(reason),
        }
    }

    fn requeue_at(&mut self, at: Option<Instant>) {
        self.due = at.into_iter().chain(self.due).min();
    }

    fn wait(&self) -> Duration {
        self.due.map_or(IDLE_WAIT, |due| {
            due.saturating_duration_since(Instant::now())
        })
    }
}

/// Inputs from which the webhook configurations are rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfigSettings {
    /// Prefix of the configurations' names.
    pub release: String,
    /// The operator's own namespace.
    pub namespace: String,
    /// How the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// Desired number of webhook replicas, if known.
    pub replicas: Option<u32>,
    /// How long any API server may take to observe a changed `caBundle` (CERT-4 (3)).
    pub propagation_delay: Duration,
}

impl WebhookConfigSettings {
    fn owner_role(&self) -> String {
        admission::owner_role_name(&self.release)
    }
}

/// The entries of the mutating configurations, as they were before those of these namespaces were applied.
struct EntriesBefore {
    known: KnownNamespaces,
    entries: Vec<MutatingWebhook>,
}

/// Applies the webhook configurations and the facts `ConfigMap`, as a task of the leader.
pub struct WebhookConfigManager {
    settings: WebhookConfigSettings,
    trust: SharedTrust,
    context: Arc<Context>,
    mutating: Arc<WebhookConfigs<MutatingWebhookConfiguration>>,
    validating: Arc<WebhookConfigs<ValidatingWebhookConfiguration>>,
    owner_roles: Arc<OwnerRoleCache>,
    injection_probes: InjectionProbes,
    facts: FactsConfigMap,
    ca_propagation: CaPropagation,
    entries_before: Option<EntriesBefore>,
    /// Work queue of the actors.
    queue: WorkQueue<WorkItem>,
    tasks: Tasks,
    failures: u32,
    /// Last error that was logged, so that a repeated one is logged only once.
    last_error: Option<String>,
}

impl WebhookConfigManager {
    /// `client` must be fenced, so that only the leader writes.
    pub fn new(
        settings: WebhookConfigSettings,
        trust: SharedTrust,
        client: Client,
        context: Arc<Context>,
        queue: WorkQueue<WorkItem>,
        tasks: Tasks,
    ) -> Self {
        Self {
            mutating: Arc::new(WebhookConfigs::new(client.clone(), &settings.release)),
            validating: Arc::new(WebhookConfigs::new(client.clone(), &settings.release)),
            owner_roles: Arc::new(OwnerRoleCache::new(
                client.clone(),
                &settings.owner_role(),
                &settings.namespace,
            )),
            injection_probes: InjectionProbes::new(client.clone()),
            facts: FactsConfigMap::new(client, &settings.namespace, &settings.release),
            ca_propagation: CaPropagation::default(),
            entries_before: None,
            settings,
            trust,
            context,
            queue,
            tasks,
            failures: 0,
            last_error: None,
        }
    }

    /// Reconciles the configurations forever.
    pub async fn run(mut self) {
        let changed = Arc::clone(self.context.bindings.changed());
        let metrics = &self.context.metrics;
        let mut watches = JoinSet::new();
        let notify = || {
            let changed = Arc::clone(&changed);
            move |_| changed.notify_one()
        };
        let name = "watch of webhook configurations";
        let mutating = self.mutating.watch(metrics).run(notify());
        let validating = self.validating.watch(metrics).run(notify());
        let owner_roles = self.owner_roles.watch(metrics).run(notify());
        let facts = self.facts.watch(metrics).run(notify());
        watches.spawn(self.tasks.run_forever(name, mutating));
        watches.spawn(self.tasks.run_forever(name, validating));
        watches.spawn(
            self.tasks
                .run_forever("watch of the owner ClusterRole", owner_roles),
        );
        watches.spawn(
            self.tasks
                .run_forever("watch of the webhook's facts", facts),
        );
        let mut ca_bundle = self.trust.desired();
        let mut next_reconcile = Instant::now();
        loop {
            tokio::select! {
                // In a fixed order, so that a simulation can be repeated. Results first: there are few, and changes
                // that never end must not hold them up.
                biased;
                finished = self.injection_probes.next() => self.record_probe(finished),
                () = changed.notified() => sleep(DEBOUNCE).await,
                _ = ca_bundle.changed() => {}
                () = sleep_until(next_reconcile) => {}
            }
            let wait = self.reconcile().await;
            next_reconcile = Instant::now() + wait;
        }
    }

    /// Reconciles once. Returns how long to wait for the next reconcile if nothing changes.
    async fn reconcile(&mut self) -> Duration {
        match self.try_reconcile().await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err(reason) => {
                self.failures += 1;
                if self.last_error.as_deref() != Some(&reason) {
                    warn!(reason, "webhook configurations");
                    self.last_error = Some(reason);
                }
                RETRY.after(self.failures)
            }
        }
    }

    async fn try_reconcile(&mut self) -> Result<Duration, String> {
        // Until the caches are synced, an object that is missing from them may exist.
        if !(self.mutating.is_synced()
            && self.validating.is_synced()
            && self.owner_roles.is_synced())
        {
            return Ok(IDLE_WAIT);
        }
        let owner_role = self.owner_roles.ensure().await?;
        self.trust.set_owner_role(owner_role.clone());
        let bundles = self.bundles();
        self.trust
            .report_bundles(bundles.iter().map(|bundle| &**bundle));
        let Some(ca_bundle) = self
            .trust
            .desired()
            .borrow()
            .as_ref()
            .map(asya_certs::ca_bundle::CaBundle::pem)
        else {
            return Ok(IDLE_WAIT);
        };
        let Some(owner_role) = owner_role else {
            return Err(format!(
                "ClusterRole {} does not exist, so no webhook configuration is applied: nothing would delete it when \
                 the operator is uninstalled",
                self.settings.owner_role()
            ));
        };
        let settings = EntrySettings {
            release: self.settings.release.clone(),
            namespace: self.settings.namespace.clone(),
            endpoint: self.settings.endpoint.clone(),
            ca_bundle,
            owner_role,
        };
        let mut applied = ApplySummary::default();
        let bindings = self.apply_all(&settings, &mut applied).await;
        // Publish facts after the objects are restored: the webhook need not learn of an entry that another client
        // changed for a moment.
        self.publish_facts(&settings.owner_role, &mut applied).await;
        let mut wait = NOT_SYNCED_RETRY;
        if let Some(bindings) = bindings {
            if applied.wrote {
                // The watch observes the write. The pause limits a conflict with another writer to one write per
                // second.
                sleep(MIN_WRITE_INTERVAL).await;
                self.context.bindings.changed().notify_one();
            }
            let next_probe = self.injection_probes.start(&bindings, &settings.ca_bundle);
            let unverified = self.injection_probes.failing_count(&settings.ca_bundle);
            self.context.metrics.set_unverified_bindings(unverified);
            wait = next_probe.unwrap_or(IDLE_WAIT);
        }
        if !applied.failures.is_empty() {
            return Err(applied.failures.join("; "));
        }
        self.last_error = None;
        Ok(wait.min(applied.wait()))
    }

    /// Records a finished dry run. The reconcile that follows applies the outcome and starts further dry runs.
    fn record_probe(&mut self, finished: FinishedProbe) {
        if let Some((key, text)) = &self.injection_probes.record(finished)
            && let Some(actor) = self.context.stores.actors.get(key)
        {
            let events = &self.context.events;
            events.publish(&actor, EventReason::InjectionNotProved, text);
        }
    }

    /// Applies every object. Returns the bindings, or `None` while it is not known which ones exist: an actor that is
    /// not listed yet must not lose its entry and its verification (CFG-2).
    async fn apply_all(
        &mut self,
        settings: &EntrySettings,
        applied: &mut ApplySummary,
    ) -> Option<Vec<WebhookBinding>> {
        let validator = DesiredConfig::new(&admission::validating(settings));
        applied.add(self.validating.apply(&validator, &self.context).await);
        let known = self.context.stores.actors.known_namespaces()?;
        let kept = match self.kept_entries(settings, &known).await {
            Ok(kept) => kept,
            Err(reason) => {
                applied.failures.push(reason);
                return None;
            }
        };
        let bindings = bindings::all(&self.context, &known);
        let configs = &self.mutating;
        let is_kept = |entry: &str| kept.iter().any(|it| it.name == entry);
        self.injection_probes
            .retain_required(&bindings, is_kept, || configs.fail_closed_entries());
        let entries: Vec<_> = bindings
            .iter()
            .map(|binding| {
                binding.binding(|name| self.injection_probes.is_verified(&binding.uid, name))
            })
            .collect();
        let rules = admission::mutating(settings, &entries, kept);
        self.report_unenforced_required(&rules.unenforced_required);
        self.apply_mutating(rules.objects, applied).await;
        Some(bindings)
    }

    /// The entries of namespaces that could not be listed or are not watched any more, as they were before (CFG-12).
    async fn kept_entries(
        &mut self,
        settings: &EntrySettings,
        known: &KnownNamespaces,
    ) -> Result<Vec<MutatingWebhook>, String> {
        if *known == KnownNamespaces::All {
            return Ok(Vec::new());
        }
        if self
            .entries_before
            .as_ref()
            .is_none_or(|it| it.known != *known)
        {
            let objects = self.mutating.read_all().await?.into_iter();
            let entries = objects.flat_map(|it| it.webhooks.unwrap_or_default());
            self.entries_before = Some(EntriesBefore {
                known: known.clone(),
                entries: entries.collect(),
            });
        }
        let before = self.entries_before.as_ref();
        let before = before.map_or(&[][..], |it| &it.entries);
        let is_unknown = |namespace: &str| !known.contains(namespace);
        Ok(admission::kept_entries(settings, before, is_unknown))
    }

    /// Publishes what the webhook cannot observe itself.
    async fn publish_facts(&mut self, owner_role: &OwnerRole, applied: &mut ApplySummary) {
        if !self.facts.is_synced() {
            return;
        }
        // Wait until every kind has been discovered; facts published earlier would have to be rewritten immediately.
        let Some(unreadable) = self.context.bindings.kinds.unreadable() else {
            return;
        };
        let in_every_bundle = facts::cas_in_every_bundle(&self.bundles());
        let trusted = self.ca_propagation.publishable(
            &in_every_bundle,
            &self.facts.published_cas(),
            self.settings.propagation_delay,
            Instant::now(),
        );
        let facts = WebhookFacts {
            trusted: trusted.fingerprints,
            scripts: Some(self.context.installation.scripts_hash.clone()),
            unreadable,
            replicas: self.settings.replicas,
        };
        applied.add(self.facts.publish(facts, owner_role).await);
        applied.requeue_at(trusted.next_due);
    }

    /// Every `caBundle` of the cached configurations.
    fn bundles(&self) -> Vec<Arc<[u8]>> {
        let mutating = self.mutating.bundles().into_iter();
        mutating.chain(self.validating.bundles()).collect()
    }

    /// Enqueues the actors for which it changed whether their required entry may fail closed, so that they report it
    /// (CFG-7).
    fn report_unenforced_required(&self, unenforced_required: &[UnenforcedBinding]) {
        let keys = unenforced_required
            .iter()
            .map(|it| (Key::new(&it.namespace, &it.actor), it.reason));
        for actor in self
            .context
            .bindings
            .unenforced_required
            .replace(keys.collect())
        {
            self.queue.enqueue(WorkItem::Actor(actor));
        }
    }

    /// Applies every object, even if another one fails. Empties objects that are no longer needed instead of deleting
    /// them: only garbage collection through the owner `ClusterRole` removes them.
    async fn apply_mutating(
        &self,
        objects: Vec<MutatingWebhookConfiguration>,
        applied: &mut ApplySummary,
    ) {
        let mut desired: BTreeMap<String, MutatingWebhookConfiguration> = BTreeMap::new();
        let template = objects.first().cloned().unwrap_or_default();
        for object in objects {
            desired.insert(object.metadata.name.clone().unwrap_or_default(), object);
        }
        for name in self.mutating.names() {
            desired.entry(name.clone()).or_insert_with(|| {
                let mut empty = template.clone();
                empty.metadata.name = Some(name);
                empty.webhooks = Some(Vec::new());
                empty
            });
        }
        // Entries of objects that failed: they may move there from an object that still has them.
        let mut not_written: BTreeSet<String> = BTreeSet::new();
        for (name, object) in desired {
            let desired = DesiredConfig::new(&object);
            let kept = self.mutating.fail_closed_entries_of(&name);
            let outcome = if kept.iter().any(|entry| not_written.contains(&**entry)) {
                let reason = "left as it is until the others are applied: it has entries that move to one of them";
                Err(format!("MutatingWebhookConfiguration {name}: {reason}"))
            } else {
                self.mutating.apply(&desired, &self.context).await
            };
            if outcome.is_err() {
                let entries = object.webhooks.into_iter().flatten();
                not_written.extend(entries.map(|entry| entry.name));
            }
            applied.add(outcome);
        }
    }
}

#[cfg(test)]
mod tests;
