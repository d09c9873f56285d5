//! Keeps the webhook configurations in step with the bindings (docs/spec/admission.md, section 4): the leader's task.
//!
//! What they should say is built by [`asya_shared::admission`]. Here is when: at each change of a binding, of the CAs that
//! are to be trusted, of the objects themselves or of their anchor. In a steady state nothing is read and nothing written.

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
use self::objects::{Objects, Outcome, Wanted};
use self::proof::{Done, Proofs};
use self::spread::Spread;
use crate::certificates::trust::Trust;
use crate::context::Context;
use crate::reconcile::work_item::WorkItem;
use crate::record::Key;
use crate::telemetry::events::EventReason;
use crate::work_queue::WorkQueue;

/// What changes at once is applied at once (CFG-1).
const DEBOUNCE: Duration = Duration::from_millis(250);
/// From one write to the next, whoever keeps taking back the first (CFG-9).
const PAUSE: Duration = Duration::from_secs(1);
/// After a failure.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// A list that comes tells us, one that fails does not.
const UNFILLED: Duration = Duration::from_secs(10);

/// Without a change, nothing is due.
const FAR: Duration = Duration::from_hours(24);

/// What has come of all objects.
#[derive(Default)]
struct Applied {
    wrote: bool,
    /// When there is something to do without a change.
    due: Option<Instant>,
}

impl Applied {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Kept => {}
            Outcome::Wrote => self.wrote = true,
            Outcome::Later(at) => self.later(Some(at)),
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

/// What the configurations are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What their names begin with.
    pub release: String,
    /// The operator's own namespace.
    pub namespace: String,
    /// Where the webhook answers.
    pub endpoint: Endpoint,
    /// How many replicas of it there are to be, where that is known.
    pub replicas: Option<u32>,
    /// How long every API server may take to see a changed `caBundle` (CERT-4 (3)).
    pub spread: Duration,
}

impl Plan {
    fn anchor(&self) -> String {
        format!("{}-webhook-anchor", self.release)
    }
}

/// The leader's task.
pub struct WebhookConfigManager {
    plan: Plan,
    trust: Trust,
    context: Arc<Context>,
    mutating: Arc<Objects<MutatingWebhookConfiguration>>,
    validating: Arc<Objects<ValidatingWebhookConfiguration>>,
    anchors: Arc<Anchors>,
    proofs: Proofs,
    facts: FactsMap,
    spread: Spread,
    /// What passes are due.
    queue: WorkQueue<WorkItem>,
    tasks: Tasks,
    failures: u32,
    /// What was told last, so that it is not told again.
    told: Option<String>,
}

impl WebhookConfigManager {
    /// `client` passes the fence.
    pub fn new(
        plan: Plan,
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

    /// Keeps the configurations for ever.
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

    /// Looks once, and answers how long to wait for the next look without a change.
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
                RETRY
                    .saturating_mul(1 << self.failures.min(8))
                    .min(LONGEST_RETRY)
            }
        }
    }

    async fn try_pass(&mut self) -> Result<Duration, String> {
        // Before all has been listed, what is missing may be there.
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
                "ClusterRole {} does not exist, so no webhook configuration is applied: nothing would remove it with the operator",
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
        // After the repair: an entry that somebody changed for a moment is no news for the webhook.
        applied.later(self.tell_facts(&settings.anchor).await?);
        let Some(bound) = healed? else {
            return Ok(UNFILLED.min(applied.wait()));
        };
        self.told = None;
        if applied.wrote {
            // Read back by the watch; who fights over it gets one answer a second.
            sleep(PAUSE).await;
            self.context.bindings.changed().notify_one();
        }
        let again = self.proofs.start(&bound, &settings.ca_bundle);
        let failing = self.proofs.failing(&settings.ca_bundle);
        self.context.metrics.unproved_bindings(failing);
        Ok(again.unwrap_or(FAR).min(applied.wait()))
    }

    /// Takes the end of a dry run; the look that follows applies what it has shown, and begins the next.
    fn settle(&mut self, done: Done) {
        if let Some((key, text)) = &self.proofs.settle(done)
            && let Some(actor) = self.context.stores.actors.get(key)
        {
            let events = &self.context.events;
            events.tell(&actor, EventReason::InjectionNotProved, text);
        }
    }

    /// Makes every object what it should be. Answers the bindings; none where it is not known yet which there are.
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

    /// Tells the webhook what it cannot see, and answers when there is more to tell.
    async fn tell_facts(&mut self, anchor: &Anchor) -> Result<Option<Instant>, String> {
        // What is told before all kinds were looked at would be told again at once.
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

    /// Every `caBundle`, as it is by now.
    fn bundles(&self) -> Vec<Arc<[u8]>> {
        let mutating = self.mutating.bundles().into_iter();
        mutating.chain(self.validating.bundles()).collect()
    }

    /// CFG-7: who asked for more than there is room for learns of it.
    fn tell_of_surplus(&self, surplus: &[(String, String)]) {
        let all = surplus.iter();
        let all = all.map(|(namespace, name)| Key::new(namespace, name));
        for actor in self.context.bindings.unenforced.tell(all.collect()) {
            self.queue.now(WorkItem::Actor(actor));
        }
    }

    /// Objects that are there and not wanted any more stay, without entries: only their anchor's end removes them.
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
