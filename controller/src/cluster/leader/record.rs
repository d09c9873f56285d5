//! The lease as this process writes it. Pure.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;

use super::LEASE_DURATION;

/// Builds a new lease of this name, held by `me`.
pub(super) fn created(name: &str, me: &str, now: Timestamp) -> Lease {
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    let mut lease = acquired(lease, me, now);
    spec(&mut lease).lease_transitions = Some(0);
    lease
}

/// Returns the lease, held by `me` from now on.
pub(super) fn acquired(lease: Lease, me: &str, now: Timestamp) -> Lease {
    let mut lease = renewed(lease, now);
    let spec = spec(&mut lease);
    spec.holder_identity = Some(me.to_owned());
    spec.acquire_time = Some(MicroTime(now));
    spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    lease
}

pub(super) fn renewed(mut lease: Lease, now: Timestamp) -> Lease {
    let spec = spec(&mut lease);
    spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
    spec.renew_time = Some(MicroTime(now));
    lease
}

/// Returns the lease without a holder, so that the next candidate does not have to wait. The holder is empty rather
/// than absent, as in client-go's leader election.
pub(super) fn released(mut lease: Lease, now: Timestamp) -> Lease {
    let spec = spec(&mut lease);
    spec.holder_identity = Some(String::new());
    spec.renew_time = Some(MicroTime(now));
    lease
}

fn spec(lease: &mut Lease) -> &mut LeaseSpec {
    lease.spec.get_or_insert_default()
}
