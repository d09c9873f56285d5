//! Decides when webhook replicas may serve a leaf certificate of a new CA (CERT-7, ADM-26).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// When each CA, keyed by fingerprint, was first found in every `caBundle`.
#[derive(Debug, Default)]
pub(super) struct Spread(BTreeMap<String, Instant>);

/// CAs to publish to the webhook replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trusted {
    /// Fingerprints of the CAs.
    pub(super) told: Vec<String>,
    /// When further CAs are due.
    pub(super) again: Option<Instant>,
}

impl Spread {
    /// `everywhere` are the CAs that every `caBundle` holds now, `before` those published last, by any leader. A new CA
    /// is published once it has been in place for `spread`: until then some API server may not have observed it. If
    /// that leaves none, there is nothing to lose, and all are published at once.
    pub(super) fn tell(
        &mut self,
        everywhere: &[String],
        before: &[String],
        spread: Duration,
        now: Instant,
    ) -> Trusted {
        self.0.retain(|it, _| everywhere.contains(it));
        for it in everywhere {
            self.0.entry(it.clone()).or_insert(now);
        }
        let due = |it: &String| self.0.get(it).map_or(now, |since| *since + spread);
        let is_told = |it: &&String| before.contains(*it) || due(it) <= now;
        let (told, wait): (Vec<&String>, Vec<_>) = everywhere.iter().partition(is_told);
        if told.is_empty() {
            return Trusted {
                told: everywhere.to_vec(),
                again: None,
            };
        }
        Trusted {
            told: told.into_iter().cloned().collect(),
            again: wait.into_iter().map(due).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPREAD: Duration = Duration::from_secs(30);

    fn these(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    /// ADM-26
    #[tokio::test(start_paused = true)]
    async fn second_ca_is_published_once_every_api_server_had_time_to_observe_it() {
        let (mut spread, start) = (Spread::default(), Instant::now());
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
        let mut before = Vec::new();
        for (after, everywhere, told) in rows {
            let now = start + Duration::from_secs(after);
            let trusted = spread.tell(&these(everywhere), &before, SPREAD, now);
            assert_eq!(trusted.told, these(told), "after {after} s");
            let waits = trusted.told.len() < everywhere.len();
            assert_eq!(trusted.again.is_some(), waits, "after {after} s");
            before = trusted.told;
        }
    }

    /// ADM-26
    #[tokio::test(start_paused = true)]
    async fn next_leader_continues_from_the_published_cas() {
        let mut spread = Spread::default();
        let now = Instant::now();
        let trusted = spread.tell(&these("ab"), &these("a"), SPREAD, now);
        assert_eq!(
            (trusted.told, trusted.again),
            (these("a"), Some(now + SPREAD))
        );
    }
}
