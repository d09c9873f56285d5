//! When each key is due: the queue's rules, without its tasks and without a clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::{Attempt, Backoff, Numbers, RunOutcome};

/// Longer than any process lives; keeps additions to an `Instant` from overflowing.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// The schedule of all keys.
pub(super) struct Schedule<K> {
    gap: Duration,
    retry: Backoff,
    slots: HashMap<K, Slot>,
    /// Planned runs of keys that do not run now, earliest first.
    due: BTreeSet<(Instant, K)>,
    /// When to check whether a slot can be dropped; in order, because the gap is the same for all.
    idle: VecDeque<(Instant, K)>,
    in_flight: usize,
    closed: bool,
}

/// State of one key.
#[derive(Default)]
struct Slot {
    /// The next run; while the key runs, it is only noted here.
    due: Option<Due>,
    last_start: Option<Instant>,
    run: Option<Run>,
    failures: u32,
}

#[derive(Clone, Copy)]
struct Due {
    when: Instant,
    /// Whether it is a retry, which counts as an attempt. A run that an event or a timer started does not (FW-6).
    retry: bool,
}

#[derive(Clone, Copy)]
struct Run {
    retry: bool,
}

/// A run to start.
pub(super) struct Start<K> {
    pub(super) key: K,
    pub(super) attempt: Attempt,
    /// Whether it retries a failed run.
    pub(super) retry: bool,
    /// Time since it was due.
    pub(super) waited: Duration,
}

impl Slot {
    /// The number of failures once the next run, or the one that just ended, has failed.
    fn failures_after(&self, retry: bool) -> u32 {
        if retry || self.failures == 0 {
            self.failures.saturating_add(1)
        } else {
            self.failures
        }
    }

    fn not_before(&self, when: Instant, gap: Duration) -> Instant {
        self.last_start.map_or(when, |last| when.max(last + gap))
    }
}

impl<K: Ord + Hash + Clone> Schedule<K> {
    pub(super) fn new(gap: Duration, retry: Backoff) -> Self {
        Self {
            gap: gap.min(LONGEST),
            retry,
            slots: HashMap::new(),
            due: BTreeSet::new(),
            idle: VecDeque::new(),
            in_flight: 0,
            closed: false,
        }
    }

    /// Plans a run at `when` at the latest. Returns whether it is the next one of all.
    pub(super) fn want(&mut self, key: K, when: Instant) -> bool {
        if self.closed {
            return false;
        }
        let slot = self.slots.entry(key.clone()).or_default();
        let when = slot.not_before(when, self.gap);
        let former = slot.due;
        if former.is_some_and(|former| former.when < when) {
            return false;
        }
        slot.due = Some(Due { when, retry: false });
        if slot.run.is_some() {
            return false;
        }
        if let Some(former) = former {
            self.due.remove(&(former.when, key.clone()));
        }
        self.due.insert((when, key));
        self.due.first().is_some_and(|first| first.0 == when)
    }

    /// Takes the oldest run that is due.
    pub(super) fn start(&mut self, now: Instant) -> Option<Start<K>> {
        self.drop_idle(now);
        if self.closed || self.due.first()?.0 > now {
            return None;
        }
        let (when, key) = self.due.pop_first()?;
        let slot = self.slots.entry(key.clone()).or_default();
        let retry = slot.due.take().is_some_and(|due| due.retry);
        let attempt = Attempt {
            failures: slot.failures,
            last: !self.retry.allows(slot.failures_after(retry)),
        };
        slot.last_start = Some(now);
        slot.run = Some(Run { retry });
        self.in_flight += 1;
        Some(Start {
            key,
            attempt,
            retry,
            waited: now.saturating_duration_since(when),
        })
    }

    /// Plans what follows a run that ended.
    pub(super) fn finish(&mut self, key: &K, outcome: RunOutcome, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        let Some(run) = slot.run.take() else {
            return;
        };
        self.in_flight -= 1;
        let (attempt, timer) = match outcome {
            RunOutcome::Done => (None, None),
            RunOutcome::Again(after) => (None, Some(after)),
            RunOutcome::Failed { after, timer } => {
                let failures = slot.failures_after(run.retry);
                let delay = after.unwrap_or_else(|| self.retry.delay(failures));
                (self.retry.allows(failures).then_some(delay), timer)
            }
        };
        slot.failures = match outcome {
            RunOutcome::Failed { .. } => slot.failures_after(run.retry),
            RunOutcome::Done | RunOutcome::Again(_) => 0,
        };
        let (attempt, timer) = (attempt.map(|it| (it, true)), timer.map(|it| (it, false)));
        let first = attempt.into_iter().chain(timer).min_by_key(|it| it.0);
        let timer = first.map(|(wait, retry)| Due {
            when: slot.not_before(now + wait.min(LONGEST), self.gap),
            retry,
        });
        slot.due = match (slot.due, timer) {
            (Some(event), Some(timer)) if timer.when < event.when => Some(timer),
            (event, timer) => event.or(timer),
        };
        if let Some(due) = slot.due {
            self.due.insert((due.when, key.clone()));
        }
        self.idle.push_back((now + self.gap, key.clone()));
    }

    /// Starts no more runs.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// When there is something to do next; without a free worker, not before a run ends.
    pub(super) fn wake_at(&self, free: bool) -> Option<Instant> {
        let due = self.due.first().filter(|_| !self.closed);
        let next = due.into_iter().chain(self.idle.front());
        next.map(|entry| entry.0).min().filter(|_| free)
    }

    pub(super) fn numbers(&self, now: Instant) -> Numbers {
        let ready = self.due.iter().take_while(|due| due.0 <= now).count();
        Numbers {
            ready,
            waiting: self.due.len() - ready,
            in_flight: self.in_flight,
        }
    }

    /// Keys with a slot.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn drop_idle(&mut self, now: Instant) {
        while self.idle.front().is_some_and(|idle| idle.0 <= now) {
            let Some((_, key)) = self.idle.pop_front() else {
                return;
            };
            let idle = |slot: &Slot| slot.due.is_none() && slot.run.is_none() && slot.failures == 0;
            // A run that started after this entry was added has its own entry, with its own gap.
            let gone = |slot: &Slot| idle(slot) && slot.not_before(now, self.gap) <= now;
            if self.slots.get(&key).is_some_and(gone) {
                self.slots.remove(&key);
            }
        }
    }
}
