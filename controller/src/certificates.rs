//! The webhook's certificates: the leader keeps them, in one Secret (docs/spec/admission.md, section 5).
//!
//! What is to be done is decided by [`asya_certs::decide`]. Here is when: at each change of the Secret or of what the
//! webhook configurations trust, and each minute by the wall clock. In a steady state nothing is read and nothing written.

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
use jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::trust::{Anchored, Trust};

/// A rotation is five writes; more at a time are a mistake.
const MOST_WRITES: usize = 8;
/// Half of what is waited after a first failure.
const RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// Before an authority is made from nothing, so long is waited to learn which one the configurations trust.
const PATIENCE: Duration = Duration::from_secs(10);

/// From one try to reach it to the next.
const REACH_AGAIN: Duration = Duration::from_secs(10);

/// What the certificates are kept by.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// What is made.
    pub settings: Settings,
    /// Whether cert-manager makes it, and nobody else (CERT-7).
    pub by_cert_manager: bool,
    /// While the API server does not reach the webhook the next CA waits, so long at most: the present one is good for
    /// longer, but a webhook that nobody can ask, or that judges nothing, must not end with it.
    pub reached_within: Duration,
    /// From one look at the clock to the next.
    pub look: Duration,
}

/// The leader's task.
pub struct CertificateManager {
    plan: Plan,
    trust: Trust,
    store: Store,
    client: Client,
    /// As they were read or written last.
    stored: Stored,
    /// Whether that is known.
    is_read: bool,
    since: Instant,
    /// Since when the next CA could sign but for a webhook that is not reached.
    unreached: Option<Instant>,
    failures: u32,
    /// What was told last, so that it is not told again.
    told: Option<String>,
}

impl CertificateManager {
    /// `client` passes the fence.
    #[must_use]
    pub fn new(plan: Plan, trust: Trust, client: Client) -> Self {
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

    /// Keeps the certificates for ever.
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
                    // What a watch shows may be older than what was written since: it only says that it is time to look.
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

    /// Looks once, and answers how long to wait for the next look.
    async fn pass(&mut self, stale: bool) -> Duration {
        match self.try_pass(stale).await {
            Ok(wait) => {
                self.failures = 0;
                wait
            }
            Err(reason) => {
                self.failures += 1;
                // What is held may be what the failed write was to replace.
                self.is_read = false;
                self.tell(&reason);
                RETRY
                    .saturating_mul(1 << self.failures.min(8))
                    .min(LONGEST_RETRY)
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
            // The keys move before anything else does: a release that knew one Secret left them where the webhook reads.
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
                // It would be left behind.
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
                // CERT-2: what another wrote is judged, and nothing made that it made already.
                Err(WriteError::Conflict) => self.read().await?,
                Err(WriteError::Api(error)) => return Err(error.to_string()),
            }
        }
        Err(format!(
            "{MOST_WRITES} changes of the Secret were not enough"
        ))
    }

    /// Whether replicas have a certificate that clients accept.
    fn serves(&self, bundle: &Bundle, now: Timestamp) -> bool {
        let leaf = bundle.leaf.as_ref();
        leaf.is_ok_and(|leaf| leaf.judge(&self.plan.settings.names, now).is_ok())
    }

    /// CERT-4 (3): whether a dry run shows that what is trusted by now does, or was tried for long enough. Without any
    /// configuration there is nobody who would ask.
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
                "the next CA waits: the API server does not reach the webhook: {reason}"
            ));
            return false;
        }
        self.unreached = None;
        self.tell(&format!(
            "the next CA signs, though the API server does not reach the webhook: {reason}"
        ));
        true
    }

    async fn read(&mut self) -> Result<(), String> {
        let read = self.store.read().await;
        self.stored = read.map_err(|error| error.to_string())?;
        self.is_read = true;
        Ok(())
    }

    /// How long to wait while a step that writes nothing is the one to take.
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
        // A bundle that cannot be read is repaired; what was trusted stays so until then.
        if authorities.is_empty() {
            return;
        }
        let bundle: CaBundle = authorities.iter().cloned().collect();
        if self.plan.by_cert_manager {
            // Only what is known can be kept.
            if self.trust.is_known() {
                self.trust.want(bundle.beside(&self.trust.present(), now));
            }
        } else {
            self.trust.want(bundle);
        }
    }

    /// Nobody but cert-manager can repair what it makes: it is told.
    fn judge(&mut self, bundle: &Bundle, now: Timestamp) {
        let leaf = bundle.leaf.as_ref().map_err(Clone::clone);
        let good = leaf.and_then(|leaf| leaf.judge(&self.plan.settings.names, now).map(drop));
        if let Err(fault) = good {
            self.tell(&format!("{fault}; look at its Certificate of cert-manager"));
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
