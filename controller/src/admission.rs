//! Reconciles the webhook configurations with the bindings (docs/spec/admission.md, section 4). Runs on the leader
//! only.
//!
//! [`asya_shared::admission`] renders the desired configurations. This module decides when to apply them: when a
//! binding, a trusted CA, the anchor or one of the configurations changes. In a steady state it sends no reads and no
//! writes.

mod anchor;
mod bindings;
mod facts;
pub mod flags;
mod objects;
mod pace;
mod proof;
mod spread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use asya_process::tasks::Tasks;
use asya_shared::admission::facts::Facts;
use asya_shared::admission::{self, Anchor, Endpoint, Settings};
use asya_shared::backoff::Backoff;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use self::anchor::Anchors;
use self::bindings::Bound;
use self::facts::FactsMap;
use self::objects::{ObjectOutcome, Objects, Wanted};
use self::proof::{Done, Proofs};
use self::spread::Spread;
use crate::certificates::trust::Trust;
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::Key;
use crate::telemetry::events::EventReason;
use crate::work_queue::WorkQueue;

/// Coalesces a burst of changes into one apply (CFG-1).
const DEBOUNCE: Duration = Duration::from_millis(250);
/// Minimum pause between two writes, even while another controller keeps reverting ours (CFG-9).
const PAUSE: Duration = Duration::from_secs(1);
/// Base of the exponential backoff after a failed reconcile.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// How soon to retry while the actor cache is not synced: a list that completes triggers a reconcile, one that fails
/// does not.
const UNFILLED: Duration = Duration::from_secs(10);

/// How long to wait if nothing is scheduled: a change triggers the next reconcile.
const FAR: Duration = Duration::from_hours(24);

/// Combined outcome of applying all objects.
#[derive(Default)]
struct Applied {
    wrote: bool,
    /// When the next reconcile is due even without a change.
    due: Option<Instant>,
}

impl Applied {
    fn add(&mut self, outcome: ObjectOutcome) {
        match outcome {
            ObjectOutcome::Kept => {}
            ObjectOutcome::Wrote => self.wrote = true,
            ObjectOutcome::Later(at) => self.later(Some(at)),
        }
    }

    fn later(&mut self, at: Option<Instant>) {
        self.due = at.into_iter().chain(self.due).min();
    }

    fn wait(&self) -> Duration {
        self.due
            .map_or(FAR, |due| due.saturating_duration_since(Instant::now()))
    }
}

/// Inputs from which the webhook configurations are rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfigPlan {
    /// Prefix of the configurations' names.
    pub release: String,
    /// The operator's own namespace.
    pub namespace: String,
    /// How the API server reaches the webhook.
    pub endpoint: Endpoint,
    /// Desired number of webhook replicas, if known.
    pub replicas: Option<u32>,
    /// How long any API server may take to observe a changed `caBundle` (CERT-4 (3)).
    pub spread: Duration,
}

impl WebhookConfigPlan {
    fn anchor(&self) -> String {
        format!("{}-webhook-anchor", self.release)
    }
}

/// Applies the webhook configurations and the facts `ConfigMap`, as a task of the leader.
pub struct WebhookConfigManager {
    plan: WebhookConfigPlan,
    trust: Trust,
    context: Arc<Context>,
    mutating: Arc<Objects<MutatingWebhookConfiguration>>,
    validating: Arc<Objects<ValidatingWebhookConfiguration>>,
    anchors: Arc<Anchors>,
    proofs: Proofs,
    facts: FactsMap,
    spread: Spread,
    /// Work queue of the actors.
    queue: WorkQueue<WorkItem>,
    tasks: Tasks,
    failures: u32,
    /// Last error that was logged, so that a repeated one is logged only once.
    told: Option<String>,
}

impl WebhookConfigManager {
    /// `client` must be fenced, so that only the leader writes.
    pub fn new(
        plan: WebhookConfigPlan,
        trust: Trust,
        client: Client,
        context: Arc<Context>,
        queue: WorkQueue<WorkItem>,
        tasks: Tasks,
    ) -> Self {
        Self {
            mutating: Arc::new(Objects::new(client.clone(), &plan.release)),
            validating: Arc::new(Objects::new(client.clone(), &plan.release)),
            anchors: Arc::new(Anchors::new(
                client.clone(),
                &plan.anchor(),
                &plan.namespace,
            )),
            proofs: Proofs::new(client.clone()),
            facts: FactsMap::new(client, &plan.namespace, &plan.release),
            spread: Spread::default(),
            plan,
            trust,
            context,
            queue,
            tasks,
            failures: 0,
            told: None,
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
        let (mutating, validating, anchors) = (
            self.mutating.watch(metrics).run(notify()),
            self.validating.watch(metrics).run(notify()),
            self.anchors.watch(metrics).run(notify()),
        );
        watches.spawn(self.tasks.unending(name, mutating));
        watches.spawn(self.tasks.unending(name, validating));
        watches.spawn(self.tasks.unending("watch of their anchor", anchors));
        let mut trusted = self.trust.wanted();
        let mut next = Instant::now();
        loop {
            tokio::select! {
                () = changed.notified() => sleep(DEBOUNCE).await,
                _ = trusted.changed() => {}
                () = sleep_until(next) => {}
                done = self.proofs.next() => self.settle(done),
            }
            let wait = self.pass().await;
            next = Instant::now() + wait;
        }
    }

    /// Reconciles once. Returns how long to wait for the next reconcile if nothing changes.
    async fn pass(&mut self) -> Duration {
        match self.try_pass().await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err(reason) => {
                self.failures += 1;
                if self.told.as_deref() != Some(&reason) {
                    warn!(reason, "webhook configurations");
                    self.told = Some(reason);
                }
                RETRY.after(self.failures)
            }
        }
    }

    async fn try_pass(&mut self) -> Result<Duration, String> {
        // Until the caches are synced, an object that is missing from them may exist.
        if !(self.mutating.is_listed() && self.validating.is_listed() && self.anchors.is_listed()) {
            return Ok(FAR);
        }
        let anchor = self.anchors.ensure().await?;
        self.trust.goes_with(anchor.clone());
        let bundles = self.bundles();
        self.trust.found(bundles.iter().map(|bundle| &**bundle));
        let Some(ca_bundle) = self
            .trust
            .wanted()
            .borrow()
            .as_ref()
            .map(asya_certs::ca_bundle::CaBundle::pem)
        else {
            return Ok(FAR);
        };
        let Some(anchor) = anchor else {
            return Err(format!(
                "ClusterRole {} does not exist, so no webhook configuration is applied: nothing would delete it when \
                 the operator is uninstalled",
                self.plan.anchor()
            ));
        };
        let settings = Settings {
            release: self.plan.release.clone(),
            namespace: self.plan.namespace.clone(),
            endpoint: self.plan.endpoint.clone(),
            ca_bundle,
            anchor,
        };
        let mut applied = Applied::default();
        let healed = self.apply_all(&settings, &mut applied).await;
        // Publish facts after the repair: the webhook need not learn of an entry that another client changed for a
        // moment.
        applied.later(self.tell_facts(&settings.anchor).await?);
        let Some(bound) = healed? else {
            return Ok(UNFILLED.min(applied.wait()));
        };
        self.told = None;
        if applied.wrote {
            // The watch reads the write back. The pause limits a fight with another writer to one write a second.
            sleep(PAUSE).await;
            self.context.bindings.changed().notify_one();
        }
        let again = self.proofs.start(&bound, &settings.ca_bundle);
        let failing = self.proofs.failing(&settings.ca_bundle);
        self.context.metrics.unproved_bindings(failing);
        Ok(again.unwrap_or(FAR).min(applied.wait()))
    }

    /// Records a finished dry run. The reconcile that follows applies the outcome and starts further dry runs.
    fn settle(&mut self, done: Done) {
        if let Some((key, text)) = &self.proofs.settle(done)
            && let Some(actor) = self.context.stores.actors.get(key)
        {
            let events = &self.context.events;
            events.tell(&actor, EventReason::InjectionNotProved, text);
        }
    }

    /// Applies every object. Returns the bindings, or `None` while it is not known which ones exist.
    async fn apply_all(
        &mut self,
        settings: &Settings,
        applied: &mut Applied,
    ) -> Result<Option<Vec<Bound>>, String> {
        let validator = Wanted::new(&admission::validating(settings));
        applied.add(self.validating.apply(&validator, &self.context).await?);
        let Some(bound) = bindings::all(&self.context) else {
            return Ok(None);
        };
        let live = &self.mutating;
        self.proofs.keep(&bound, || live.failing());
        let bindings: Vec<_> = bound
            .iter()
            .map(|bound| bound.binding(|name| self.proofs.has(&bound.uid, name)))
            .collect();
        let rules = admission::mutating(settings, &bindings);
        self.tell_of_surplus(&rules.surplus);
        self.apply_mutating(rules.objects, applied).await?;
        Ok(Some(bound))
    }

    /// Publishes what the webhook cannot observe itself. Returns when there is more to publish.
    async fn tell_facts(&mut self, anchor: &Anchor) -> Result<Option<Instant>, String> {
        // Wait until every kind has been discovered; facts published earlier would have to be rewritten at once.
        let Some(unreadable) = self.context.bindings.kinds.unreadable() else {
            return Ok(None);
        };
        let everywhere = facts::trusted(&self.bundles());
        let (before, now) = (self.facts.trusted().await?, Instant::now());
        let trusted = self.spread.tell(&everywhere, before, self.plan.spread, now);
        let facts = Facts {
            trusted: trusted.told,
            scripts: Some(self.context.installation.scripts_hash.clone()),
            unreadable,
            replicas: self.plan.replicas,
        };
        self.facts.tell(facts, anchor).await?;
        Ok(trusted.again)
    }

    /// Every `caBundle` of the cached configurations.
    fn bundles(&self) -> Vec<Arc<[u8]>> {
        let mutating = self.mutating.bundles().into_iter();
        mutating.chain(self.validating.bundles()).collect()
    }

    /// Enqueues the actors for which it changed whether their required entry exceeds the limit, so that they report it
    /// (CFG-7).
    fn tell_of_surplus(&self, surplus: &[(String, String)]) {
        let all = surplus.iter();
        let all = all.map(|(namespace, name)| Key::new(namespace, name));
        for actor in self.context.bindings.unenforced.tell(all.collect()) {
            self.queue.now(WorkItem::Actor(actor));
        }
    }

    /// Keeps surplus objects, but without entries: only garbage collection through the anchor removes them.
    async fn apply_mutating(
        &self,
        objects: Vec<MutatingWebhookConfiguration>,
        applied: &mut Applied,
    ) -> Result<(), String> {
        let mut wanted: BTreeMap<String, MutatingWebhookConfiguration> = BTreeMap::new();
        let template = objects.first().cloned().unwrap_or_default();
        for object in objects {
            wanted.insert(object.metadata.name.clone().unwrap_or_default(), object);
        }
        for name in self.mutating.names() {
            wanted.entry(name.clone()).or_insert_with(|| {
                let mut empty = template.clone();
                empty.metadata.name = Some(name);
                empty.webhooks = Some(Vec::new());
                empty
            });
        }
        for object in wanted.into_values() {
            let wanted = Wanted::new(&object);
            applied.add(self.mutating.apply(&wanted, &self.context).await?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
