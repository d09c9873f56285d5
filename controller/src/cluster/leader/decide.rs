//! Decides what a candidate does about the lease that it observes. Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::{LEASE_DURATION, POLL_INTERVAL, UNREADY_GRACE};

/// The relevant fields of a lease. Its timestamps are ignored, because they come from another machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseView<'a> {
    /// Empty if there is no holder.
    pub(super) holder: &'a str,
    /// Changes with every renewal.
    pub(super) version: &'a str,
    /// How long others must wait after a renewal.
    pub(super) duration: Duration,
}

impl<'a> LeaseView<'a> {
    pub(super) fn of(lease: &'a Lease) -> Self {
        let spec = lease.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec
                .and_then(|spec| spec.holder_identity.as_deref())
                .unwrap_or_default(),
            version: lease
                .metadata
                .resource_version
                .as_deref()
                .unwrap_or_default(),
            duration: seconds
                .filter(|seconds| *seconds > 0)
                .map_or(LEASE_DURATION, Duration::from_secs),
        }
    }
}

/// A lease that another process holds or none, and since when it is unchanged by the local clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    version: String,
    since: Instant,
    duration: Duration,
}

impl Observed {
    fn expires_at(&self) -> Instant {
        self.since + self.duration
    }
}

/// Action to take on the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It does not exist: create it.
    Create,
    /// This process holds it: renew it.
    Renew,
    /// It is free or has expired: acquire it.
    Acquire,
    /// Another candidate holds it.
    Standby {
        /// When to read it again.
        recheck_at: Instant,
    },
}

/// Decides from the lease as just read. `me` is unique to this process, so this process holds a lease with that holder,
/// even if the response to the write that acquired it was lost. A candidate that is not ready leaves the lease to
/// others for a while, except one that nobody has ever held: the first leader applies the CRD, without which none is
/// ready.
pub(super) fn decide(
    lease: Option<LeaseView<'_>>,
    me: &str,
    is_ready: bool,
    observed: &mut Option<Observed>,
    now: Instant,
) -> Decision {
    if let Some(lease) = lease {
        if lease.holder == me {
            *observed = None;
            return Decision::Renew;
        }
        let duration = if lease.holder.is_empty() {
            Duration::ZERO
        } else {
            lease.duration
        };
        if observed
            .as_ref()
            .is_none_or(|observed| observed.version != lease.version)
        {
            *observed = Some(Observed {
                version: lease.version.to_owned(),
                since: now,
                duration,
            });
        }
    }
    // A lease deleted while it was held is not free until it would have expired: the holder writes until then, and
    // recreates it.
    let grace = if is_ready {
        Duration::ZERO
    } else {
        UNREADY_GRACE
    };
    let free_at = observed
        .as_ref()
        .map(|observed| observed.expires_at() + grace);
    match free_at {
        Some(free_at) if now < free_at => Decision::Standby {
            recheck_at: free_at.min(now + POLL_INTERVAL),
        },
        _ if lease.is_some() => Decision::Acquire,
        _ => Decision::Create,
    }
}
