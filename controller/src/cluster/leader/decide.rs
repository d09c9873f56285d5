//! What a candidate does about the lease that it sees: pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

use super::{DURATION, LOOK};

/// What of a lease decides. Its times are missing: they are of another machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Empty: nobody.
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

/// Another's lease, and since when our clock has seen it unchanged.
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
    /// There is none: create it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// Nobody's, or run out: take it.
    Take,
    /// Another's.
    Standby {
        /// When to look at it again.
        look_again: Instant,
    },
}

/// Decides about the lease as it was read just now. `me` is unique to this process, so a lease of that
/// name is ours, also when the answer to the write that made it so was lost.
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
    // A lease that was deleted under its holder is not free before it would have run out: the holder
    // writes until then, and creates it again.
    match observed {
        Some(observed) if now < observed.ends() => Decision::Standby {
            look_again: observed.ends().min(now + LOOK),
        },
        _ if lease.is_some() => Decision::Take,
        _ => Decision::Create,
    }
}
