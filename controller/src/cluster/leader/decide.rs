//! Decides what a candidate does about the lease it sees. Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::{DURATION, LOOK};

/// The parts of a lease that matter. Its timestamps do not, because they come from another machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Empty if there is no holder.
    pub(super) holder: &'a str,
    /// Changes with every renewal.
    pub(super) version: &'a str,
    /// How long the holder asks others to wait after a renewal.
    pub(super) duration: Duration,
}

impl<'a> View<'a> {
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
                .map_or(DURATION, Duration::from_secs),
        }
    }
}

/// Another holder's lease, and since when our clock has seen it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    version: String,
    since: Instant,
    duration: Duration,
}

impl Observed {
    fn ends(&self) -> Instant {
        self.since + self.duration
    }
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It does not exist: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// Free or expired: take it.
    Take,
    /// Another candidate holds it.
    Standby {
        /// When to read it again.
        look_again: Instant,
    },
}

/// Decides about the lease as just read. `me` is unique to this process, so a lease with that holder is ours, even if
/// the response to the write that acquired it was lost.
pub(super) fn decide(
    lease: Option<View<'_>>,
    me: &str,
    observed: &mut Option<Observed>,
    now: Instant,
) -> Decision {
    if let Some(lease) = lease {
        if lease.holder == me || lease.holder.is_empty() {
            *observed = None;
            return if lease.holder.is_empty() {
                Decision::Take
            } else {
                Decision::Renew
            };
        }
        if observed
            .as_ref()
            .is_none_or(|observed| observed.version != lease.version)
        {
            *observed = Some(Observed {
                version: lease.version.to_owned(),
                since: now,
                duration: lease.duration,
            });
        }
    }
    // A lease deleted while it was held is not free before it would have expired: the holder writes until then, and
    // creates it again.
    match observed {
        Some(observed) if now < observed.ends() => Decision::Standby {
            look_again: observed.ends().min(now + LOOK),
        },
        _ if lease.is_some() => Decision::Take,
        _ => Decision::Create,
    }
}
