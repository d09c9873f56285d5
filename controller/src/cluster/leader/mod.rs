//! Leader election through a `Lease` (OPS-6, FW-11).
//!
//! Clocks of other machines are not trusted: a lease has expired once this process has observed the same version of it
//! for its whole duration. The holder stops leading earlier, [`RENEW_DEADLINE`] after its last successful renewal
//! started, so that it stops writing before another candidate starts; the [`Fence`] enforces that even if this task is
//! not scheduled in time. Every write carries the version that it replaces, so only one of several candidates wins.

mod decide;
mod phase;
mod record;
#[cfg(test)]
mod tests;

use std::time::Duration;

use asya_process::clock;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::fence::Fence;
use crate::fault::Conflict;
use crate::telemetry::health::Readiness;
use decide::{Decision, LeaseView, Observed, decide};

pub use phase::{LeadershipPhase, Phase};

/// How long other candidates wait after a renewal.
const LEASE_DURATION: Duration = Duration::from_secs(10);
/// How long the holder leads after its last successful renewal started. The rest of [`LEASE_DURATION`] lets a request
/// that was sent at the last moment take effect.
const RENEW_DEADLINE: Duration = Duration::from_secs(7);
/// Interval between renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of one attempt: half of [`RENEW_DEADLINE`], as in client-go. A busy API server has time to respond, and a
/// connection that hangs leaves time for another attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(3500);
/// How often a follower reads the lease, and so the longest delay until it observes a dead leader's last renewal.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How much longer a candidate that is not ready waits for a free or expired lease: meanwhile, any that is ready polls
/// it.
const UNREADY_GRACE: Duration = Duration::from_secs(15);
/// How long a process holds the lease without becoming ready. Most lists take seconds.
const UNREADY_LIMIT: Duration = Duration::from_mins(1);
/// Delay after a failed attempt of the leader.
const RETRY_PERIOD: Duration = Duration::from_millis(250);

/// A process that competes for the lease.
pub struct Candidate {
    /// A candidate that is not ready lets others lead.
    pub readiness: Readiness,
    /// Only for the lease: without retries, and not fenced.
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Unique to this process, see [`identity`].
    pub identity: String,
    /// Open while this process leads.
    pub fence: Fence,
}

/// How the candidacy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipEnd {
    /// Another process leads or may lead: exit immediately, without finishing anything.
    Lost,
    /// Stopped on request; the lease was released if this process held it.
    Released,
}

/// Generates an identity unique to this process: a pod restarted under the same name must not mistake the lease of its
/// predecessor for its own.
#[must_use]
pub fn identity(pod: &str) -> String {
    format!("{pod}_{:016x}", fastrand::u64(..))
}

impl Candidate {
    /// Acquires the lease, and holds it until it is lost or `shutdown` is cancelled. Releases it once every write in
    /// flight has ended. Also releases it if `phase` does not become [`Phase::Leading`] in time, and competes again.
    pub async fn run(self, shutdown: CancellationToken, phase: LeadershipPhase) -> LeadershipEnd {
        let mut election = Election {
            api: Api::namespaced(self.client, &self.namespace),
            name: self.name,
            identity: self.identity,
            known: None,
            observed: None,
        };
        let fence = self.fence;
        let lost = |election: &Election, reason| {
            fence.close();
            error!(lease = election.name, reason, "lease lost");
            LeadershipEnd::Lost
        };
        loop {
            let campaign = election.campaign(&shutdown, &self.readiness).await;
            let Some(since) = campaign else {
                election.release().await;
                return LeadershipEnd::Released;
            };
            info!(
                lease = election.name,
                identity = election.identity,
                "leading"
            );
            fence.extend_until(since + RENEW_DEADLINE);
            phase.advance(Phase::Standby, Phase::Preparing);
            match election.hold(since, &fence, &shutdown, &phase).await {
                Ok(HoldEnd::Shutdown) => break,
                Ok(HoldEnd::NotReady) => {}
                Err(reason) => return lost(&election, reason),
            }
            let pending = self.readiness.pending().join("; ");
            warn!(
                lease = election.name,
                pending, "not ready: giving the lease back"
            );
            fence.drain().await;
            if !fence.reset() {
                return lost(&election, "writes were in flight for too long");
            }
            election.release().await;
            phase.advance(Phase::GivingBack, Phase::GivenBack);
            phase.reaches(Phase::Standby).await;
        }
        fence.drain().await;
        fence.close();
        election.release().await;
        info!(lease = election.name, "lease released");
        LeadershipEnd::Released
    }
}

/// Why a process that still holds the lease no longer renews it.
enum HoldEnd {
    Shutdown,
    /// It has not become ready in time.
    NotReady,
}

/// Result of one attempt.
enum AttemptOutcome {
    /// This process holds the lease, through a write that started at this time.
    Leading { since: Instant },
    /// Another candidate holds it.
    Standby { recheck_at: Instant },
    /// Another candidate wrote it concurrently: read it again.
    Conflict,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no response in time")]
    Slow(#[from] tokio::time::error::Elapsed),
}

struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// The lease as last written by this process; `None` means that it must be read first.
    known: Option<Lease>,
    observed: Option<Observed>,
}

impl Election {
    /// Waits until this process holds the lease. Returns when the write that acquired it started, or `None` on
    /// shutdown.
    async fn campaign(
        &mut self,
        shutdown: &CancellationToken,
        readiness: &Readiness,
    ) -> Option<Instant> {
        let mut last_failure = String::new();
        loop {
            let is_ready = readiness.is_ready();
            let attempt = self.attempt(Instant::now() + ATTEMPT_TIMEOUT, is_ready);
            let next = match attempt.await {
                Ok(AttemptOutcome::Leading { since })
                    if Instant::now() < since + RENEW_DEADLINE =>
                {
                    return (!shutdown.is_cancelled()).then_some(since);
                }
                Ok(AttemptOutcome::Standby { recheck_at }) => recheck_at,
                Ok(AttemptOutcome::Leading { .. } | AttemptOutcome::Conflict) => {
                    Instant::now() + RETRY_PERIOD
                }
                Err(failure) => {
                    let failure = failure.to_string();
                    if failure == last_failure {
                        debug!(lease = self.name, failure, "cannot read or take the lease");
                    } else {
                        warn!(lease = self.name, failure, "cannot read or take the lease");
                        last_failure = failure;
                    }
                    Instant::now() + POLL_INTERVAL
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                () = readiness.all_ready(), if !is_ready => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Renews the lease until shutdown, or until it is to be given back. Returns an error if it is lost.
    async fn hold(
        &mut self,
        since: Instant,
        fence: &Fence,
        shutdown: &CancellationToken,
        phase: &LeadershipPhase,
    ) -> Result<HoldEnd, &'static str> {
        let mut deadline = since + RENEW_DEADLINE;
        let mut next = since + RENEW_INTERVAL;
        let give_back_at = since + UNREADY_LIMIT;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(HoldEnd::Shutdown),
                () = sleep_until(next.min(deadline)) => {}
            }
            let now = Instant::now();
            if now >= deadline {
                return Err("no renewal succeeded in time");
            }
            if now >= give_back_at && phase.advance(Phase::Preparing, Phase::GivingBack) {
                return Ok(HoldEnd::NotReady);
            }
            let until = deadline.min(now + ATTEMPT_TIMEOUT);
            match self.attempt(until, true).await {
                Ok(AttemptOutcome::Leading { since }) => {
                    (deadline, next) = (since + RENEW_DEADLINE, since + RENEW_INTERVAL);
                    fence.extend_until(deadline);
                }
                Ok(AttemptOutcome::Standby { .. }) => {
                    return Err("another process holds the lease");
                }
                Ok(AttemptOutcome::Conflict) => next = Instant::now() + RETRY_PERIOD,
                Err(failure) => {
                    warn!(lease = self.name, %failure, "the lease was not renewed");
                    next = Instant::now() + RETRY_PERIOD;
                }
            }
        }
    }

    /// Reads, decides and writes. It is unknown whether a failed attempt wrote, so the next one reads first.
    async fn attempt(
        &mut self,
        until: Instant,
        is_ready: bool,
    ) -> Result<AttemptOutcome, AttemptError> {
        timeout_at(until, self.step(is_ready))
            .await?
            .map_err(AttemptError::from)
    }

    async fn step(&mut self, is_ready: bool) -> Result<AttemptOutcome, kube::Error> {
        let lease = match self.known.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        let view = lease.as_ref().map(LeaseView::of);
        let since = Instant::now();
        let decision = decide(view, &self.identity, is_ready, &mut self.observed, since);
        let lease = lease.unwrap_or_default();
        let now = clock::now();
        let written = match decision {
            Decision::Standby { recheck_at } => {
                return Ok(AttemptOutcome::Standby { recheck_at });
            }
            Decision::Create => {
                let lease = record::created(&self.name, &self.identity, now);
                self.api.create(&PostParams::default(), &lease).await
            }
            Decision::Renew => self.replace(record::renewed(lease, now)).await,
            Decision::Acquire => {
                self.replace(record::acquired(lease, &self.identity, now))
                    .await
            }
        };
        match written {
            Ok(lease) => {
                self.known = Some(lease);
                Ok(AttemptOutcome::Leading { since })
            }
            // Another process created or changed the lease since it was read.
            Err(error) if Conflict::of(&error).is_some() => Ok(AttemptOutcome::Conflict),
            Err(error) => Err(error),
        }
    }

    async fn replace(&self, lease: Lease) -> Result<Lease, kube::Error> {
        let params = PostParams::default();
        self.api.replace(&self.name, &params, &lease).await
    }

    /// Releases the lease if this process still holds it.
    async fn release(&mut self) {
        match timeout(ATTEMPT_TIMEOUT, self.try_release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(lease = self.name, %error, "the lease was not released"),
            Err(_) => warn!(lease = self.name, "the lease was not released in time"),
        }
    }

    async fn try_release(&mut self) -> Result<(), kube::Error> {
        loop {
            let lease = match self.known.take() {
                Some(lease) => Some(lease),
                None => self.api.get_opt(&self.name).await?,
            };
            let Some(lease) = lease.filter(|lease| LeaseView::of(lease).holder == self.identity)
            else {
                return Ok(());
            };
            match self.replace(record::released(lease, clock::now())).await {
                Err(error) if Conflict::of(&error).is_some() => {}
                written => return written.map(drop),
            }
        }
    }
}
