//! Backoff for restoring an object that another client keeps reverting (CFG-9, ADM-24).

use std::collections::BTreeMap;
use std::time::Duration;

use asya_shared::backoff::Backoff;
use tokio::time::Instant;

/// Manual edits are occasional, so this many are reverted without a delay.
const QUICK: u32 = 5;
const PAUSE: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(5));
/// After this long without a restore, the conflict counts as over.
const PEACE: Duration = Duration::from_mins(15);

/// Recent restores, by object name.
#[derive(Debug, Default)]
pub(super) struct Pace(BTreeMap<String, Restored>);

#[derive(Clone, Copy, Debug)]
struct Restored {
    times: u32,
    last: Instant,
}

impl Pace {
    /// When the object may be restored again; `None` means now.
    pub(super) fn not_before(&self, name: &str, now: Instant) -> Option<Instant> {
        let restored = self.0.get(name)?;
        let next = restored.last + pause(restored.times);
        (next > now).then_some(next)
    }

    /// Records a restore and returns the pause until the next one.
    pub(super) fn restored(&mut self, name: &str, now: Instant) -> Duration {
        let entry = self.0.entry(name.to_owned());
        let entry = entry.or_insert(Restored {
            times: 0,
            last: now,
        });
        if now.duration_since(entry.last) >= PEACE {
            entry.times = 0;
        }
        (entry.times, entry.last) = (entry.times + 1, now);
        pause(entry.times)
    }
}

fn pause(times: u32) -> Duration {
    match times.checked_sub(QUICK) {
        None => Duration::ZERO,
        Some(more) => PAUSE.after(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ADM-24: a client that reverts every write at once causes at most 15 writes in the first 20 minutes, then 12 an
    /// hour.
    #[tokio::test(start_paused = true)]
    async fn a_duel_slows_down_to_a_write_in_five_minutes() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut writes = Vec::new();
        let mut now = start;
        while now < start + Duration::from_hours(1) {
            now = pace.not_before("injector", now).unwrap_or(now);
            writes.push(now - start);
            pace.restored("injector", now);
            assert_eq!(pace.not_before("validator", now), None, "of its own");
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
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..50 {
            assert_eq!(pace.not_before("injector", now), None);
            pace.restored("injector", now);
            now += PEACE;
        }
        for _ in 0..QUICK {
            assert_eq!(pace.not_before("injector", now), None);
            pace.restored("injector", now);
        }
        assert_eq!(pace.not_before("injector", now), Some(now + PAUSE.after(0)));
    }
}
