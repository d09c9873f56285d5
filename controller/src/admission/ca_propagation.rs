//! Decides when webhook replicas may serve a leaf certificate of a new CA (CERT-7, ADM-26).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// When each CA, keyed by fingerprint, was first present in every `caBundle`.
#[derive(Debug, Default)]
pub(super) struct CaPropagation(BTreeMap<String, Instant>);

/// CAs to publish to the webhook replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PublishableCas {
    pub(super) fingerprints: Vec<String>,
    /// When further CAs are due.
    pub(super) next_due: Option<Instant>,
}

impl CaPropagation {
    /// `in_every_bundle` are the CAs that every `caBundle` holds now, `previous` those published last, by any leader. A
    /// new CA is published once it has been in place for `propagation_delay`: until then some API server might not
    /// have observed it. If that leaves none, waiting protects nothing, and all are published immediately.
    pub(super) fn publishable(
        &mut self,
        in_every_bundle: &[String],
        previous: &[String],
        propagation_delay: Duration,
        now: Instant,
    ) -> PublishableCas {
        self.0.retain(|ca, _| in_every_bundle.contains(ca));
        for ca in in_every_bundle {
            self.0.entry(ca.clone()).or_insert(now);
        }
        let due = |ca: &String| {
            self.0
                .get(ca)
                .map_or(now, |since| *since + propagation_delay)
        };
        let is_publishable = |ca: &&String| previous.contains(*ca) || due(ca) <= now;
        let (published, pending): (Vec<&String>, Vec<_>) =
            in_every_bundle.iter().partition(is_publishable);
        if published.is_empty() {
            return PublishableCas {
                fingerprints: in_every_bundle.to_vec(),
                next_due: None,
            };
        }
        PublishableCas {
            fingerprints: published.into_iter().cloned().collect(),
            next_due: pending.into_iter().map(due).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROPAGATION_TIME: Duration = Duration::from_secs(30);

    fn fingerprints(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    /// ADM-26
    #[tokio::test(start_paused = true)]
    async fn second_ca_is_published_once_every_api_server_had_time_to_observe_it() {
        let mut propagation = CaPropagation::default();
        let start = Instant::now();
        // Seconds since the start, the CAs in every bundle, the published CAs.
        let rows = [
            (0, "", ""),
            (1, "a", "a"),
            (10, "ab", "a"),
            (39, "ab", "a"),
            (40, "ab", "ab"),
            (50, "b", "b"),
            (60, "bc", "b"),
            // Another client removed it from one bundle, so its wait starts over.
            (70, "b", "b"),
            (80, "bc", "b"),
            (100, "bc", "b"),
            (110, "bc", "bc"),
            (120, "d", "d"),
        ];
        let mut previous = Vec::new();
        for (after, in_every_bundle, published) in rows {
            let now = start + Duration::from_secs(after);
            let trusted = propagation.publishable(
                &fingerprints(in_every_bundle),
                &previous,
                PROPAGATION_TIME,
                now,
            );
            assert_eq!(
                trusted.fingerprints,
                fingerprints(published),
                "after {after} s"
            );
            let is_pending = trusted.fingerprints.len() < in_every_bundle.len();
            assert_eq!(trusted.next_due.is_some(), is_pending, "after {after} s");
            previous = trusted.fingerprints;
        }
    }

    /// ADM-26
    #[tokio::test(start_paused = true)]
    async fn next_leader_continues_from_the_published_cas() {
        let mut propagation = CaPropagation::default();
        let now = Instant::now();
        let trusted = propagation.publishable(
            &fingerprints("ab"),
            &fingerprints("a"),
            PROPAGATION_TIME,
            now,
        );
        assert_eq!(
            (trusted.fingerprints, trusted.next_due),
            (fingerprints("a"), Some(now + PROPAGATION_TIME))
        );
    }
}
