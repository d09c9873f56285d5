//! From when on replicas may serve a leaf of a CA (CERT-7, ADM-26).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Since when each CA has been in every `caBundle`, by its fingerprint.
#[derive(Debug, Default)]
pub(super) struct Spread(BTreeMap<String, Instant>);

/// What replicas are to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trusted {
    /// The CAs.
    pub(super) told: Vec<String>,
    /// When there is more to tell.
    pub(super) again: Option<Instant>,
}

impl Spread {
    /// `everywhere` are the CAs that every `caBundle` holds now, `before` those that were told last, by whomever. Another is
    /// told when it has been there for `spread`: until then some API server may not have seen it. Where that leaves none,
    /// there is nothing to lose, and all are told.
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
    async fn a_second_ca_is_told_when_every_api_server_had_time_to_see_it() {
        let (mut spread, start) = (Spread::default(), Instant::now());
        // After so many seconds, what every bundle holds and what is told.
        let rows = [
            (0, "", ""),
            (1, "a", "a"),
            (10, "ab", "a"),
            (39, "ab", "a"),
            (40, "ab", "ab"),
            (50, "b", "b"),
            (60, "bc", "b"),
            // Taken out of one bundle by somebody: it begins anew.
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
    async fn the_next_leader_goes_on_with_what_was_told_and_lets_the_rest_wait() {
        let mut spread = Spread::default();
        let now = Instant::now();
        let trusted = spread.tell(&these("ab"), &these("a"), SPREAD, now);
        assert_eq!(
            (trusted.told, trusted.again),
            (these("a"), Some(now + SPREAD))
        );
    }
}
