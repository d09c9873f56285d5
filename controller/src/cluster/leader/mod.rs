//! Leader election through a `Lease` (OPS-6, FW-11).
//!
//! Clocks of other machines are not trusted: a lease has expired once *we* have seen the same version of it for its
//! whole duration. The holder gives up earlier, [`GIVE_UP`] after its last successful renewal began, so that it stops
//! writing before another candidate starts; the [`Fence`] enforces that even if this task is not scheduled in time.
//! Every write carries the version that it replaces, so only one of several candidates wins.

mod decide;
mod record;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::fence::Fence;
use decide::{Decision, Observed, View, decide};

/// How long other candidates wait after our renewal.
const DURATION: Duration = Duration::from_secs(10);
/// How long we lead after our last successful renewal began. The rest of [`DURATION`] lets a request that was sent at
/// the last moment take effect.
const GIVE_UP: Duration = Duration::from_secs(7);
/// Interval between renewals.
const RENEW: Duration = Duration::from_secs(2);
/// Timeout of one attempt; a renewal takes up to 0.7 s while the API server is busy.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often a follower reads the lease, and so the longest delay in noticing the last renewal of a dead leader.
const LOOK: Duration = Duration::from_secs(1);
/// Delay after a failed attempt of the leader.
const RETRY: Duration = Duration::from_millis(250);

/// A process that competes for the lease.
pub struct Candidate {
    /// For the lease alone: without retries, and not behind the fence.
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Unique to this process, see [`identity`].
    pub identity: String,
    /// Open while we lead.
    pub fence: Fence,
}

/// How the candidacy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Another process leads or may lead: exit at once, without finishing anything.
    Lost,
    /// Stopped on request; the lease was released if it was ours.
    Released,
}

/// An identity unique to this process: a pod restarted under its old name must not mistake the lease of its predecessor
/// for its own.
#[must_use]
pub fn identity(pod: &str) -> String {
    format!("{pod}_{:016x}", fastrand::u64(..))
}

impl Candidate {
    /// Acquires the lease, calls `acquired`, and holds the lease until it is lost or `shutdown` is cancelled. Cancel
    /// `shutdown` only after the last write.
    pub async fn run(self, shutdown: CancellationToken, acquired: impl FnOnce()) -> Ended {
        let mut election = Election {
            api: Api::namespaced(self.client, &self.namespace),
            name: self.name,
            me: self.identity,
            known: None,
            observed: None,
        };
        let Some(since) = election.campaign(&shutdown).await else {
            election.release().await;
            return Ended::Released;
        };
        info!(lease = election.name, identity = election.me, "leading");
        self.fence.extend_until(since + GIVE_UP);
        acquired();
        let held = election.hold(since, &self.fence, &shutdown).await;
        self.fence.close();
        match held {
            Ok(()) => {
                election.release().await;
                info!(lease = election.name, "lease released");
                Ended::Released
            }
            Err(reason) => {
                error!(lease = election.name, reason, "lease lost");
                Ended::Lost
            }
        }
    }
}

/// Result of one attempt.
enum Step {
    /// We hold the lease, through a write that began at this time.
    Ours { since: Instant },
    /// Another candidate holds it.
    Standby { look_again: Instant },
    /// Another candidate wrote it in the meantime: read it again.
    Raced,
}

/// Why an attempt had no result.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no response in time")]
    Slow(#[from] tokio::time::error::Elapsed),
}

struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
    /// Our lease as last written; `None` means that it must be read first.
    known: Option<Lease>,
    observed: Option<Observed>,
}

impl Election {
    /// Waits until the lease is ours. Returns when the write that acquired it began, or `None` if asked to stop.
    async fn campaign(&mut self, shutdown: &CancellationToken) -> Option<Instant> {
        let mut complained = String::new();
        loop {
            let next = match self.attempt(Instant::now() + ATTEMPT).await {
                Ok(Step::Ours { since }) if Instant::now() < since + GIVE_UP => {
                    return (!shutdown.is_cancelled()).then_some(since);
                }
                Ok(Step::Standby { look_again }) => look_again,
                Ok(Step::Ours { .. } | Step::Raced) => Instant::now() + RETRY,
                Err(failure) => {
                    let failure = failure.to_string();
                    if failure == complained {
                        debug!(lease = self.name, failure, "cannot read or take the lease");
                    } else {
                        warn!(lease = self.name, failure, "cannot read or take the lease");
                        complained = failure;
                    }
                    Instant::now() + LOOK
                }
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                () = sleep_until(next) => {}
            }
        }
    }

    /// Renews the lease until asked to stop, otherwise returns how it was lost.
    async fn hold(
        &mut self,
        since: Instant,
        fence: &Fence,
        shutdown: &CancellationToken,
    ) -> Result<(), &'static str> {
        let (mut deadline, mut next) = (since + GIVE_UP, since + RENEW);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = sleep_until(next.min(deadline)) => {}
            }
            let now = Instant::now();
            if now >= deadline {
                return Err("no renewal succeeded in time");
            }
            match self.attempt(deadline.min(now + ATTEMPT)).await {
                Ok(Step::Ours { since }) => {
                    (deadline, next) = (since + GIVE_UP, since + RENEW);
                    fence.extend_until(deadline);
                }
                Ok(Step::Standby { .. }) => return Err("another process holds the lease"),
                Ok(Step::Raced) => next = Instant::now() + RETRY,
                Err(failure) => {
                    warn!(lease = self.name, %failure, "the lease was not renewed");
                    next = Instant::now() + RETRY;
                }
            }
        }
    }

    /// Reads, decides and writes. It is unknown whether a failed attempt wrote, so the next one reads first.
    async fn attempt(&mut self, until: Instant) -> Result<Step, Failure> {
        timeout_at(until, self.step()).await?.map_err(Failure::from)
    }

    async fn step(&mut self) -> Result<Step, kube::Error> {
        let lease = match self.known.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        let view = lease.as_ref().map(View::of);
        let since = Instant::now();
        let decision = decide(view, &self.me, &mut self.observed, since);
        let (lease, now) = (lease.unwrap_or_default(), Timestamp::now());
        let written = match decision {
            Decision::Standby { look_again } => return Ok(Step::Standby { look_again }),
            Decision::Create => {
                let lease = record::created(&self.name, &self.me, now);
                self.api.create(&PostParams::default(), &lease).await
            }
            Decision::Renew => self.replace(record::renewed(lease, now)).await,
            Decision::Take => self.replace(record::taken(lease, &self.me, now)).await,
        };
        match written {
            Ok(lease) => {
                self.known = Some(lease);
                Ok(Step::Ours { since })
            }
            Err(error) if is_conflict(&error) => Ok(Step::Raced),
            Err(error) => Err(error),
        }
    }

    async fn replace(&self, lease: Lease) -> Result<Lease, kube::Error> {
        let params = PostParams::default();
        self.api.replace(&self.name, &params, &lease).await
    }

    /// Releases the lease if it is still ours.
    async fn release(&mut self) {
        match timeout(ATTEMPT, self.try_release()).await {
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
            let Some(lease) = lease.filter(|lease| View::of(lease).holder == self.me) else {
                return Ok(());
            };
            match self
                .replace(record::released(lease, Timestamp::now()))
                .await
            {
                Err(error) if is_conflict(&error) => {}
                written => return written.map(drop),
            }
        }
    }
}

/// Whether another process created or changed the lease since we read it.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
