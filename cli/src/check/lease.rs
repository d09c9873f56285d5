//! The Lease that the leading replica of the controller renews.

use std::time::Duration;

use asya_shared::names::LEASE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::reading::Read;
use crate::cluster::{Cluster, resource};

/// Twice the interval at which a leader renews its Lease.
const OBSERVED_FOR: Duration = Duration::from_secs(4);
/// How far the leader's clock may be ahead of this computer's without being noticed.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);
/// The value of an absent `leaseDurationSeconds`.
const DEFAULT_DURATION: i64 = 10;

/// A Lease as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLease {
    pub spec: Value,
    /// When it was read, by this computer's clock.
    pub read_at: Timestamp,
    /// Whether a later read has shown another renewal; if so, clocks do not matter.
    pub is_renewed: bool,
}

impl ObservedLease {
    /// The replica that holds it, if there is one.
    pub fn holder(&self) -> Option<&str> {
        let holder = self.spec["holderIdentity"].as_str();
        holder.filter(|it| !it.is_empty())
    }

    pub fn renewed(&self) -> Option<Timestamp> {
        self.spec["renewTime"].as_str()?.parse().ok()
    }

    /// Whether its last renewal is recent enough, assuming that both clocks are right.
    pub fn looks_held(&self) -> bool {
        let duration = self.spec["leaseDurationSeconds"].as_i64();
        let duration = SignedDuration::from_secs(duration.unwrap_or(DEFAULT_DURATION));
        let age = self.renewed().map(|it| self.read_at.duration_since(it));
        age.is_some_and(|age| (-TOLERANCE..=duration).contains(&age))
    }
}

/// Reads the Lease; `None` if there is none.
pub async fn read(cluster: &Cluster) -> Read<Option<ObservedLease>> {
    let home = Some(&*cluster.operator_namespace);
    let found = cluster.get(&resource::<Lease>(), home, LEASE).await;
    let read_at = Timestamp::now();
    let found = found.map_err(|failure| failure.text)?;
    Ok(found.map(|mut lease| ObservedLease {
        spec: lease["spec"].take(),
        read_at,
        is_renewed: false,
    }))
}

/// Whether a Lease that does not look held is renewed within a while.
pub async fn is_renewed(
    cluster: &Cluster,
    lease: &Read<Option<ObservedLease>>,
    timeout: Duration,
) -> bool {
    let Ok(Some(lease)) = lease else { return false };
    if lease.holder().is_none() || lease.renewed().is_none() || lease.looks_held() {
        return false;
    }
    // Leaves time for the other requests.
    tokio::time::sleep(OBSERVED_FOR.min(timeout / 3)).await;
    let later = read(cluster).await;
    matches!(later, Ok(Some(later)) if later.holder().is_some() && later.renewed() != lease.renewed())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn renewed(at: Timestamp) -> Value {
        json!({"holderIdentity": "asya-operator-0", "renewTime": at.to_string(), "leaseDurationSeconds": 10})
    }

    /// docs/cli.md: `check` does not depend on this computer's clock.
    #[tokio::test(start_paused = true)]
    async fn lease_that_is_renewed_is_held_whatever_the_clocks_say() {
        let start = Timestamp::now();
        for (ahead, interval, looks_held, expected) in [
            (0, 2, true, false),
            (-3600, 2, false, true),
            (3600, 2, false, true),
            (-3600, 0, false, false),
            (3600, 0, false, false),
        ] {
            let seconds = Arc::new(AtomicI64::new(ahead));
            let answer = move |_: Request<Body>| {
                let seconds = seconds.fetch_add(interval, Ordering::Relaxed);
                let spec = renewed(start + SignedDuration::from_secs(seconds));
                let lease = json!({"metadata": {"name": LEASE}, "spec": spec});
                let response = Response::builder().body(Body::from(lease.to_string().into_bytes()));
                async move { response.map_err(tower::BoxError::from) }
            };
            let cluster = Cluster::of(Client::new(tower::service_fn(answer), "m"));
            let lease = read(&cluster).await;
            let first = lease.clone().unwrap().unwrap();
            assert_eq!(first.looks_held(), looks_held, "{ahead} {interval}");
            let found = is_renewed(&cluster, &lease, Duration::from_secs(15)).await;
            assert_eq!(found, expected, "{ahead} {interval}");
        }
    }
}
