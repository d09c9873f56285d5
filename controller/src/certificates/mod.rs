//! The webhook's certificates and CA keys, which the leader manages in Secrets (docs/spec/admission.md, section 5).
//!
//! [`asya_certs::decide`] decides what to do; this module decides when: on each change of the Secrets or of what the
//! webhook configurations trust, and at an interval, by the wall clock. In a steady state it reads and writes nothing.

pub mod flags;
mod reachability;
#[cfg(test)]
mod tests;
pub mod trust;

use std::time::Duration;

use asya_certs::ca_bundle::CaBundle;
use asya_certs::certificate::Certificate;
use asya_certs::change::{Change, apply_step};
use asya_certs::decide::{Step, decide};
use asya_certs::issuer::Settings;
use asya_certs::parsed_secret::ParsedSecret;
use asya_certs::secret::TlsSecret;
use asya_certs::store::{Store, Stored, WriteError, ca_secret_name};
use asya_certs::watch::{Observation, SecretWatch};
use asya_process::clock;
use asya_shared::backoff::Backoff;
use jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::trust::{OwnerRoleState, SharedTrust};

/// A rotation takes five writes; more than this at a time is a bug.
const MAX_WRITES: usize = 8;
/// Initial backoff, doubled before the first retry.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_mins(1));
/// How long to wait, before creating a CA from nothing, to learn which one the configurations trust.
const TRUST_DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between attempts to reach the webhook.
const REACHABILITY_RETRY: Duration = Duration::from_secs(10);

/// How the certificates are managed.
#[derive(Clone, Debug)]
pub struct CertificateConfig {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Name of the Secret that the webhook reads.
    pub secret: String,
    /// The certificates to issue.
    pub settings: Settings,
    /// Whether cert-manager alone issues the certificates (CERT-7).
    pub by_cert_manager: bool,
    /// Maximum time that the next CA waits while the API server does not reach the webhook. The current CA is valid for
    /// longer, but a webhook that cannot be called, or validates nothing, must not delay the rotation past its expiry.
    pub reachability_deadline: Duration,
    /// Interval between checks of the clock.
    pub check_interval: Duration,
}

/// CAs that the configurations trusted before the Secret was replaced by one without any of them, such as a restored
/// backup.
struct SupersededCas {
    cas: CaBundle,
    /// When every API server trusts the new CAs, and every replica has had time to serve a certificate that they
    /// issued.
    until: Instant,
}

/// The leader's certificate task.
pub struct CertificateManager {
    config: CertificateConfig,
    trust: SharedTrust,
    store: Store,
    client: Client,
    /// The Secrets as last read or written.
    stored: Stored,
    /// Whether `stored` is up to date.
    is_current: bool,
    /// When this task started: it takes a moment to learn which CAs the configurations trust.
    started: Instant,
    /// Since when only webhook reachability has blocked the next CA.
    unreachable_since: Option<Instant>,
    /// CAs whose certificates the webhook's replicas may still serve.
    superseded: Option<SupersededCas>,
    failures: u32,
    /// The last message, which is not logged again.
    last_message: Option<String>,
}

impl CertificateManager {
    /// `client` must pass the fence.
    #[must_use]
    pub fn new(config: CertificateConfig, trust: SharedTrust, client: Client) -> Self {
        Self {
            store: Store::new(client.clone(), &config.namespace, &config.secret),
            config,
            trust,
            client,
            stored: Stored::default(),
            is_current: false,
            started: Instant::now(),
            unreachable_since: None,
            superseded: None,
            failures: 0,
            last_message: None,
        }
    }

    /// Manages the certificates, forever.
    pub async fn run(mut self) {
        let namespace = &self.config.namespace;
        let name = &self.config.secret;
        let mut watch = SecretWatch::new(self.client.clone(), namespace, name);
        let keys = ca_secret_name(name);
        let mut keys = SecretWatch::new(self.client.clone(), namespace, &keys);
        let (mut observed_trust, mut owner_role) =
            (self.trust.subscribe_observed(), self.trust.owner_role());
        self.started = Instant::now();
        let mut next = self.started;
        loop {
            let mut stale = !self.is_current;
            tokio::select! {
                // In a fixed order, so that a simulation can be repeated.
                biased;
                observation = watch.next() => match observation {
                    // A watch may lag behind our last write, so it only triggers a read.
                    Observation::Current(secret) => {
                        stale |= version(secret.as_deref()) != version(self.stored.serving_secret.as_ref());
                    }
                    Observation::Unavailable(_) => continue,
                },
                observation = keys.next(), if !self.config.by_cert_manager => match observation {
                    Observation::Current(secret) => {
                        stale |= version(secret.as_deref()) != version(self.stored.ca_secret.as_ref());
                    }
                    Observation::Unavailable(_) => continue,
                },
                _ = observed_trust.changed() => {}
                _ = owner_role.changed() => {}
                () = sleep_until(next) => {}
            }
            next = Instant::now() + self.reconcile(stale).await;
        }
    }

    /// Reconciles once, and returns the delay before the next time.
    async fn reconcile(&mut self, stale: bool) -> Duration {
        match self.try_reconcile(stale).await {
            Ok(wait) => {
                self.failures = 0;
                let superseded = self.superseded.as_ref();
                let superseded = superseded.map(|it| it.until - Instant::now());
                let timers = [superseded, self.trust_discovery()];
                timers.into_iter().flatten().fold(wait, Duration::min)
            }
            Err(reason) => {
                self.failures += 1;
                // A failed write may have been stored nevertheless.
                self.is_current = false;
                self.warn_once(&reason);
                RETRY.after(self.failures)
            }
        }
    }

    async fn try_reconcile(&mut self, stale: bool) -> Result<Duration, String> {
        if stale {
            self.read().await?;
        }
        for _ in 0..MAX_WRITES {
            let data = self.stored.data();
            let exists = self.stored.serving_secret.is_some();
            let secret = self.stored.parsed();
            let now = clock::now();
            self.request_trust(&secret.cas, now);
            if self.config.by_cert_manager {
                self.log_leaf_fault(&secret, now);
                return Ok(self.config.check_interval);
            }
            let trusted_for = self.trust.trusted_for(&secret.cas);
            // Move the CA keys first: versions with a single Secret left them where the webhook reads.
            let step = if self.stored.ca_keys_are_separate() {
                decide(&secret, trusted_for, &self.config.settings, now)
            } else {
                Step::Keep
            };
            if let Some(wait) = self.postponed(&step, &secret, now).await {
                return Ok(wait);
            }
            let trusted = self.trust.trusted_anywhere();
            let settings = &self.config.settings;
            let changed = apply_step(&step, &data, &secret, &trusted, settings, now);
            let changed = changed.map_err(|error| error.to_string())?;
            let owner_role = self.trust.owner_role().borrow().clone();
            if !exists && owner_role == Some(OwnerRoleState::Missing) {
                // Without an owner, nothing would remove the Secret.
                return Ok(self.config.check_interval);
            }
            let owner = owner_role.as_ref().and_then(OwnerRoleState::owner);
            let is_up_to_date =
                self.stored.ca_keys_are_separate() && self.stored.has_owner(owner.as_ref());
            let unchanged = || Change {
                data: data.clone(),
                since: secret.since,
            };
            let Some(changed) = changed.or_else(|| (!is_up_to_date).then(unchanged)) else {
                return Ok(self.wait_after(&step, trusted_for));
            };
            let written = self.store.write(&self.stored, changed, owner.as_ref());
            match written.await {
                Ok(written) => {
                    self.stored = written;
                    self.last_message = None;
                    info!(secret = self.config.secret, %step, "webhook certificates");
                }
                // Continue from what another process wrote, so that nothing is created twice (CERT-2).
                Err(WriteError::Conflict) => self.read().await?,
                Err(WriteError::Api(error)) => return Err(error.to_string()),
            }
        }
        Err(format!(
            "no success after {MAX_WRITES} writes to the Secret"
        ))
    }

    /// How long to postpone the step; `None` if it may be taken now.
    async fn postponed(
        &mut self,
        step: &Step,
        secret: &ParsedSecret,
        now: Timestamp,
    ) -> Option<Duration> {
        let discovery = self.trust_discovery();
        if discovery.is_some() && matches!(step, Step::Create(_)) {
            return discovery;
        }
        let is_unreachable =
            *step == Step::Switch && self.has_valid_leaf(secret, now) && !self.is_reachable().await;
        is_unreachable.then(|| REACHABILITY_RETRY.min(self.config.reachability_deadline))
    }

    /// How long to wait until it is known what the configurations trust; `None` if it is, or if that takes too long.
    fn trust_discovery(&self) -> Option<Duration> {
        let left = TRUST_DISCOVERY_TIMEOUT.saturating_sub(self.started.elapsed());
        (!self.trust.is_known() && !left.is_zero()).then_some(left)
    }

    /// Whether the webhook's replicas have a certificate that clients accept.
    fn has_valid_leaf(&self, secret: &ParsedSecret, now: Timestamp) -> bool {
        let leaf = secret.leaf.as_ref();
        leaf.is_ok_and(|leaf| leaf.verify(&self.config.settings.names, now).is_ok())
    }

    /// Whether a dry run shows that the API server reaches the webhook with the CAs it trusts now, or the deadline for
    /// that has passed. Without any webhook configuration there is no caller (CERT-4 (3)).
    async fn is_reachable(&mut self) -> bool {
        if self.trust.has_no_bundles() {
            return true;
        }
        let Err(reason) =
            reachability::check_webhook_reachable(&self.client, &self.config.namespace).await
        else {
            self.unreachable_since = None;
            return true;
        };
        let since = *self.unreachable_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.config.reachability_deadline {
            self.warn_once(&format!(
                "waiting to use the next CA: the API server does not reach the webhook: {reason}"
            ));
            return false;
        }
        self.unreachable_since = None;
        self.warn_once(&format!(
            "using the next CA, although the API server does not reach the webhook: {reason}"
        ));
        true
    }

    async fn read(&mut self) -> Result<(), String> {
        let read = self.store.read().await;
        self.stored = read.map_err(|error| error.to_string())?;
        self.is_current = true;
        Ok(())
    }

    /// How long to wait when the next step writes nothing.
    fn wait_after(&mut self, step: &Step, trusted_for: Option<Duration>) -> Duration {
        let interval = self.config.check_interval;
        if *step == Step::Keep {
            self.last_message = None;
            return interval;
        }
        if self.last_message.as_deref() != Some(&step.to_string()) {
            info!(secret = self.config.secret, %step, "webhook certificates");
            self.last_message = Some(step.to_string());
        }
        let remaining = trusted_for.map(|elapsed| {
            self.config
                .settings
                .propagation_delay
                .saturating_sub(elapsed)
        });
        remaining.unwrap_or(interval).min(interval)
    }

    fn request_trust(&mut self, cas: &[Certificate], now: Timestamp) {
        // An unreadable bundle will be repaired; until then, leave the trusted CAs unchanged.
        if cas.is_empty() {
            return;
        }
        let bundle: CaBundle = cas.iter().cloned().collect();
        if self.config.by_cert_manager {
            // Old CAs can be kept only once they are known.
            if self.trust.is_known() {
                self.trust
                    .set_desired(bundle.merged_with(&self.trust.trusted_anywhere(), now));
            }
            return;
        }
        // A new leader has requested no bundle yet: the configurations hold the one that the previous leader requested.
        let requested = self.trust.desired().borrow().clone();
        if requested.is_none() && self.trust_discovery().is_some() {
            return;
        }
        let observed = || self.trust.trusted_anywhere().into_iter().collect();
        let trusted: CaBundle = requested.unwrap_or_else(observed);
        let is_replaced = !trusted.certificates().is_empty()
            && !trusted.certificates().iter().any(|ca| cas.contains(ca));
        if is_replaced {
            self.superseded = Some(SupersededCas {
                cas: trusted,
                until: Instant::now() + 2 * self.config.settings.propagation_delay,
            });
        }
        self.superseded
            .take_if(|superseded| superseded.until <= Instant::now());
        let superseded = self.superseded.as_ref();
        let superseded = superseded.map_or(&[][..], |it| it.cas.certificates());
        self.trust.set_desired(bundle.merged_with(superseded, now));
    }

    /// Only cert-manager can repair what it issues, so log the fault.
    fn log_leaf_fault(&mut self, secret: &ParsedSecret, now: Timestamp) {
        let leaf = secret.leaf.as_ref().map_err(Clone::clone);
        let verified =
            leaf.and_then(|leaf| leaf.verify(&self.config.settings.names, now).map(drop));
        if let Err(fault) = verified {
            self.warn_once(&format!("{fault}; check its cert-manager Certificate"));
        } else {
            self.last_message = None;
        }
    }

    fn warn_once(&mut self, reason: &str) {
        if self.last_message.as_deref() != Some(reason) {
            let namespace = &self.config.namespace;
            let name = &self.config.secret;
            warn!(
                secret = format!("{namespace}/{name}"),
                reason, "webhook certificates"
            );
            self.last_message = Some(reason.to_owned());
        }
    }
}

fn version(secret: Option<&TlsSecret>) -> Option<&str> {
    secret?.metadata.resource_version.as_deref()
}
