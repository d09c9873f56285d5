//! Leader election by a `Lease` (OPS-6, FW-11).
//!
//! Clocks of other machines are not trusted: a lease has run out when *we* have seen the same version of
//! it for its whole duration. The holder gives up earlier, [`GIVE_UP`] after its last successful renewal
//! began, so that it has stopped to write before anybody else starts; the [`Fence`] sees to that even
//! when this task gets no time to run. Every write carries the version that it replaces, so of several
//! candidates one wins.

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

/// How long the others wait after a renewal of ours.
const DURATION: Duration = Duration::from_secs(10);
/// How long we lead after the start of our last successful renewal. What is missing to [`DURATION`] is
/// the time that a request of ours, sent in the last moment, has to take effect.
const GIVE_UP: Duration = Duration::from_secs(7);
/// From one renewal to the next.
const RENEW: Duration = Duration::from_secs(2);
/// Longest time for one attempt; while the API server is busy a renewal takes up to 0.7 s.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often a follower looks. The last renewal of a dead leader is noticed so much too late at most.
const LOOK: Duration = Duration::from_secs(1);
/// From a failed attempt of the leader's to the next.
const RETRY: Duration = Duration::from_millis(250);

/// One process that wants to lead.
pub struct Candidate {
    /// Of the lease alone, without retries and not behind the fence.
    pub client: Client,
    /// Where the lease is.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Unique to this process: see [`identity`].
    pub identity: String,
    /// Open while we lead.
    pub fence: Fence,
}

/// How it came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Another leads, or may lead: exit at once, without finishing anything.
    Lost,
    /// We were asked to stop; the lease is free if it was ours.
    Released,
}

/// An identity that no other process has: a pod that is started again under its old name must not take
/// the lease of its former self for its own.
#[must_use]
pub fn identity(pod: &str) -> String {
    format!("{pod}_{:016x}", fastrand::u64(..))
}

impl Candidate {
    /// Waits for the lease, calls `acquired`, and holds the lease until it is lost or `shutdown` is
    /// cancelled, which is to be done after the last write.
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

/// What became of one attempt.
enum Step {
    /// The lease is ours; the write that made it so began then.
    Ours { since: Instant },
    /// Another has it.
    Standby { look_again: Instant },
    /// Somebody wrote it meanwhile: read it again.
    Raced,
}

/// Why an attempt told nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer in time")]
    Slow(#[from] tokio::time::error::Elapsed),
}

struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
    /// Our lease as last written; without it the lease is read first.
    known: Option<Lease>,
    observed: Option<Observed>,
}

impl Election {
    /// Until the lease is ours: when the write that made it so began. None when asked to stop.
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

    /// Renews the lease until asked to stop, or else says how it was lost.
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
                Ok(Step::Standby { .. }) => return Err("another holds it"),
                Ok(Step::Raced) => next = Instant::now() + RETRY,
                Err(failure) => {
                    warn!(lease = self.name, %failure, "the lease was not renewed");
                    next = Instant::now() + RETRY;
                }
            }
        }
    }

    /// Reads, decides and writes. An attempt that fails leaves it open whether it wrote; the next one
    /// reads.
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

    /// Frees the lease if it is still ours.
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

/// The lease was created or changed by another since we read it.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
