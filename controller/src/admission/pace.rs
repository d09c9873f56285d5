//! How often an object is restored that somebody keeps taking back (CFG-9, ADM-24).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Edits by hand come singly: so many are undone at once.
const QUICK: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Left alone for so long, it is not fought over any more.
const PEACE: Duration = Duration::from_mins(15);

/// What was restored lately, by name.
#[derive(Debug, Default)]
pub(super) struct Pace(BTreeMap<String, Restored>);

#[derive(Clone, Copy, Debug)]
struct Restored {
    times: u32,
    last: Instant,
}

impl Pace {
    /// When this object may be restored again; none means at once.
    pub(super) fn not_before(&self, name: &str, now: Instant) -> Option<Instant> {
        let restored = self.0.get(name)?;
        let next = restored.last + pause(restored.times);
        (next > now).then_some(next)
    }

    /// It was restored. Answers the pause until it may be again.
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
        Some(more) => FIRST_PAUSE
            .saturating_mul(1 << more.min(16))
            .min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ADM-24: a rival that takes everything back at once costs 15 writes in the first 20 minutes, then 12 an hour.
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
    async fn edits_now_and_then_are_undone_at_once() {
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
        assert_eq!(pace.not_before("injector", now), Some(now + FIRST_PAUSE));
    }
}
