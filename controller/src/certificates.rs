//! The webhook's certificates and CA keys, which the leader keeps in Secrets (docs/spec/admission.md, section 5).
//!
//! [`asya_certs::decide`] decides what to do; this module decides when: on each change of the Secrets or of what the
//! webhook configurations trust, and at an interval, by the wall clock. In a steady state it reads and writes nothing.

pub mod flags;
mod reach;
#[cfg(test)]
mod tests;
pub mod trust;

use std::time::Duration;

use asya_certs::bundle::Bundle;
use asya_certs::ca_bundle::CaBundle;
use asya_certs::certificate::Certificate;
use asya_certs::change::{Change, change};
use asya_certs::decide::{Step, decide};
use asya_certs::mint::Settings;
use asya_certs::secret::TlsSecret;
use asya_certs::store::{Store, Stored, WriteError, authority_secret};
use asya_certs::watch::{SecretWatch, Seen};
use asya_shared::backoff::Backoff;
use jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::trust::{Anchored, Trust};

/// A rotation takes five writes; more than this at a time is a bug.
const MOST_WRITES: usize = 8;
/// Half of the delay after a first failure.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_mins(1));
/// How long to wait, before creating a CA from nothing, to learn which one the configurations trust.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval between attempts to reach the webhook.
const REACH_AGAIN: Duration = Duration::from_secs(10);

/// How the certificates are kept.
#[derive(Clone, Debug)]
pub struct CertificatePlan {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Name of the Secret that the webhook reads.
    pub secret: String,
    /// What to issue.
    pub settings: Settings,
    /// Whether cert-manager alone issues the certificates (CERT-7).
    pub by_cert_manager: bool,
    /// How long the next CA waits at most while the API server does not reach the webhook. The present CA is valid for
    /// longer, but a webhook that cannot be called, or that judges nothing, must not keep it from being replaced in
    /// time.
    pub reached_within: Duration,
    /// Interval between checks of the clock.
    pub look: Duration,
}

/// The leader's certificate task.
pub struct CertificateManager {
    plan: CertificatePlan,
    trust: Trust,
    store: Store,
    client: Client,
    /// The Secrets as last read or written.
    stored: Stored,
    /// Whether `stored` is up to date.
    is_read: bool,
    since: Instant,
    /// Since when only the unreached webhook keeps the next CA from signing.
    unreached: Option<Instant>,
    failures: u32,
    /// The last message, which is not logged again.
    told: Option<String>,
}

impl CertificateManager {
    /// `client` must pass the fence.
    #[must_use]
    pub fn new(plan: CertificatePlan, trust: Trust, client: Client) -> Self {
        Self {
            store: Store::new(client.clone(), &plan.namespace, &plan.secret),
            plan,
            trust,
            client,
            stored: Stored::default(),
            is_read: false,
            since: Instant::now(),
            unreached: None,
            failures: 0,
            told: None,
        }
    }

    /// Keeps the certificates forever.
    pub async fn run(mut self) {
        let (namespace, name) = (&self.plan.namespace, &self.plan.secret);
        let mut watch = SecretWatch::new(self.client.clone(), namespace, name);
        let keys = authority_secret(name);
        let mut keys = SecretWatch::new(self.client.clone(), namespace, &keys);
        let (mut found, mut anchored) = (self.trust.changes(), self.trust.anchored());
        self.since = Instant::now();
        let mut next = self.since;
        loop {
            let mut stale = !self.is_read;
            tokio::select! {
                seen = watch.next() => match seen {
                    // A watch may show an older version than our last write: it only tells us when to read again.
                    Seen::Now(shown) => stale |= version(shown.as_deref()) != version(self.stored.server.as_ref()),
                    Seen::Blind(_) => continue,
                },
                seen = keys.next(), if !self.plan.by_cert_manager => match seen {
                    Seen::Now(shown) => stale |= version(shown.as_deref()) != version(self.stored.authority.as_ref()),
                    Seen::Blind(_) => continue,
                },
                _ = found.changed() => {}
                _ = anchored.changed() => {}
                () = sleep_until(next) => {}
            }
            next = Instant::now() + self.pass(stale).await;
        }
    }

    /// Reconciles once, and returns the delay before the next time.
    async fn pass(&mut self, stale: bool) -> Duration {
        match self.try_pass(stale).await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err(reason) => {
                self.failures += 1;
                // What we hold may be what the failed write was to replace.
                self.is_read = false;
                self.tell(&reason);
                RETRY.after(self.failures)
            }
        }
    }

    async fn try_pass(&mut self, stale: bool) -> Result<Duration, String> {
        if stale {
            self.read().await?;
        }
        for _ in 0..MOST_WRITES {
            let (data, exists) = (self.stored.data(), self.stored.server.is_some());
            let (bundle, now) = (self.stored.bundle(), Timestamp::now());
            self.want(&bundle.authorities, now);
            if self.plan.by_cert_manager {
                self.judge(&bundle, now);
                return Ok(self.plan.look);
            }
            let trusted_for = self.trust.trusted_for(&bundle.authorities);
            // First move the keys: a release with a single Secret left them where the webhook reads.
            let step = if self.stored.is_split() {
                decide(&bundle, trusted_for, &self.plan.settings, now)
            } else {
                Step::Keep
            };
            let unknown = !self.trust.is_known() && self.since.elapsed() < PATIENCE;
            if matches!(step, Step::Mint(_)) && unknown {
                return Ok(PATIENCE.saturating_sub(self.since.elapsed()));
            }
            if step == Step::Switch && self.serves(&bundle, now) && !self.is_reached().await {
                return Ok(REACH_AGAIN.min(self.plan.reached_within));
            }
            let present = self.trust.present();
            let settings = &self.plan.settings;
            let changed = change(&step, &data, &bundle, &present, settings, now);
            let changed = changed.map_err(|error| error.to_string())?;
            let anchored = self.trust.anchored().borrow().clone();
            if !exists && anchored == Some(Anchored::Nowhere) {
                // Without an owner, nothing would remove the Secret.
                return Ok(self.plan.look);
            }
            let owner = anchored.as_ref().and_then(Anchored::owner);
            let is_settled = self.stored.is_split() && self.stored.goes_with(owner.as_ref());
            let as_it_is = || Change {
                data: data.clone(),
                since: bundle.since,
            };
            let Some(changed) = changed.or_else(|| (!is_settled).then(as_it_is)) else {
                return Ok(self.after(&step, trusted_for));
            };
            let written = self.store.write(&self.stored, changed, owner.as_ref());
            match written.await {
                Ok(written) => {
                    self.stored = written;
                    self.told = None;
                    info!(secret = self.plan.secret, %step, "webhook certificates");
                }
                // Continue from what another process wrote, so that nothing is created twice (CERT-2).
                Err(WriteError::Conflict) => self.read().await?,
                Err(WriteError::Api(error)) => return Err(error.to_string()),
            }
        }
        Err(format!("gave up after {MOST_WRITES} writes to the Secret"))
    }

    /// Whether the webhook's replicas have a certificate that clients accept.
    fn serves(&self, bundle: &Bundle, now: Timestamp) -> bool {
        let leaf = bundle.leaf.as_ref();
        leaf.is_ok_and(|leaf| leaf.judge(&self.plan.settings.names, now).is_ok())
    }

    /// Whether a dry run shows that the API server reaches the webhook with what it trusts now, or this was tried for
    /// long enough. Without any webhook configuration there is no caller (CERT-4 (3)).
    async fn is_reached(&mut self) -> bool {
        if self.trust.is_empty() {
            return true;
        }
        let Err(reason) = reach::reach(&self.client, &self.plan.namespace).await else {
            self.unreached = None;
            return true;
        };
        let since = *self.unreached.get_or_insert_with(Instant::now);
        if since.elapsed() < self.plan.reached_within {
            self.tell(&format!(
                "waiting to use the next CA: the API server does not reach the webhook: {reason}"
            ));
            return false;
        }
        self.unreached = None;
        self.tell(&format!(
            "using the next CA, although the API server does not reach the webhook: {reason}"
        ));
        true
    }

    async fn read(&mut self) -> Result<(), String> {
        let read = self.store.read().await;
        self.stored = read.map_err(|error| error.to_string())?;
        self.is_read = true;
        Ok(())
    }

    /// How long to wait when the next step writes nothing.
    fn after(&mut self, step: &Step, trusted_for: Option<Duration>) -> Duration {
        let look = self.plan.look;
        if *step == Step::Keep {
            self.told = None;
            return look;
        }
        if self.told.as_deref() != Some(&step.to_string()) {
            info!(secret = self.plan.secret, %step, "webhook certificates");
            self.told = Some(step.to_string());
        }
        let left = trusted_for.map(|so_long| self.plan.settings.spread.saturating_sub(so_long));
        left.unwrap_or(look).min(look)
    }

    fn want(&self, authorities: &[Certificate], now: Timestamp) {
        // An unreadable bundle will be repaired; until then the trust stays as it is.
        if authorities.is_empty() {
            return;
        }
        let bundle: CaBundle = authorities.iter().cloned().collect();
        if self.plan.by_cert_manager {
            // Old authorities can be kept only once they are known.
            if self.trust.is_known() {
                self.trust.want(bundle.beside(&self.trust.present(), now));
            }
        } else {
            self.trust.want(bundle);
        }
    }

    /// Only cert-manager can repair what it issues, so log the fault.
    fn judge(&mut self, bundle: &Bundle, now: Timestamp) {
        let leaf = bundle.leaf.as_ref().map_err(Clone::clone);
        let good = leaf.and_then(|leaf| leaf.judge(&self.plan.settings.names, now).map(drop));
        if let Err(fault) = good {
            self.tell(&format!("{fault}; check its cert-manager Certificate"));
        } else {
            self.told = None;
        }
    }

    fn tell(&mut self, reason: &str) {
        if self.told.as_deref() != Some(reason) {
            let (namespace, name) = (&self.plan.namespace, &self.plan.secret);
            warn!(
                secret = format!("{namespace}/{name}"),
                reason, "webhook certificates"
            );
            self.told = Some(reason.to_owned());
        }
    }
}

fn version(secret: Option<&TlsSecret>) -> Option<&str> {
    secret?.metadata.resource_version.as_deref()
}
