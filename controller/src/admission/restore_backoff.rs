//! Backoff for restoring an object that another client keeps reverting (CFG-9, ADM-24).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::restore_delay::{QUIET_PERIOD, restore_delay};

/// Half of the first delay.
const BASE: Duration = Duration::from_secs(1);

/// Recent restores, by object name.
#[derive(Debug, Default)]
pub(super) struct RestoreBackoff(BTreeMap<String, RestoreHistory>);

#[derive(Clone, Copy, Debug)]
struct RestoreHistory {
    times: u32,
    last: Instant,
}

impl RestoreBackoff {
    /// When the object may be restored again; `None` means now.
    pub(super) fn not_before(&self, name: &str, now: Instant) -> Option<Instant> {
        let restored = self.0.get(name)?;
        let next = restored.last + pause(restored.times);
        (next > now).then_some(next)
    }

    /// Records a restore and returns the pause until the next one.
    pub(super) fn record_restore(&mut self, name: &str, now: Instant) -> Duration {
        let history = self.0.entry(name.to_owned());
        let history = history.or_insert(RestoreHistory {
            times: 0,
            last: now,
        });
        if now.duration_since(history.last) >= QUIET_PERIOD {
            history.times = 0;
        }
        (history.times, history.last) = (history.times + 1, now);
        pause(history.times)
    }
}

fn pause(times: u32) -> Duration {
    restore_delay(times, BASE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore_delay::UNDELAYED_RESTORES;

    /// ADM-24: a client that reverts every write immediately causes at most 15 writes in the first 20 minutes, then 12
    /// an hour.
    #[tokio::test(start_paused = true)]
    async fn repeated_reverts_slow_down_to_one_write_in_five_minutes() {
        let mut backoff = RestoreBackoff::default();
        let start = Instant::now();
        let mut writes = Vec::new();
        let mut now = start;
        // Without a delay this hour would never end.
        while now < start + Duration::from_hours(1) && writes.len() < 100 {
            now = backoff.not_before("injector", now).unwrap_or(now);
            writes.push(now - start);
            backoff.record_restore("injector", now);
            assert_eq!(
                backoff.not_before("validator", now),
                None,
                "the backoff is per object"
            );
        }
        let minutes = |from: u64, to: u64| {
            let all = writes.iter().map(|at| at.as_secs() / 60);
            all.filter(|at| (from..to).contains(at)).count()
        };
        assert!(minutes(0, 20) <= 15, "{writes:?}");
        assert!((7..=9).contains(&minutes(20, 60)), "{writes:?}");
    }

    /// CFG-9
    #[tokio::test(start_paused = true)]
    async fn occasional_edits_are_reverted_at_once() {
        let mut backoff = RestoreBackoff::default();
        let mut now = Instant::now();
        for _ in 0..50 {
            assert_eq!(backoff.not_before("injector", now), None);
            backoff.record_restore("injector", now);
            now += QUIET_PERIOD;
        }
        for _ in 0..UNDELAYED_RESTORES {
            assert_eq!(backoff.not_before("injector", now), None);
            backoff.record_restore("injector", now);
        }
        assert_eq!(
            backoff.not_before("injector", now),
            Some(now + Duration::from_secs(2))
        );
    }
}
