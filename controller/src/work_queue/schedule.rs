//! When each key is due: the rules of the queue, without tasks or a clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::{Attempt, QueueSizes, RetryPolicy, RunOutcome};

/// Longer than any process runs; prevents overflows when adding to an `Instant`.
const MAX_DELAY: Duration = Duration::from_hours(24 * 365);

pub(super) struct Schedule<K> {
    min_interval: Duration,
    retry: RetryPolicy,
    keys: HashMap<K, KeyState>,
    /// Planned runs of keys that are not running, earliest first.
    due: BTreeSet<(Instant, K)>,
    /// When to check whether a key's state can be dropped; ordered, because all keys have the same minimum interval.
    idle: VecDeque<(Instant, K)>,
    in_flight: usize,
    closed: bool,
}

#[derive(Default)]
struct KeyState {
    /// The next run; while the key runs, stored only here.
    due: Option<Due>,
    last_start: Option<Instant>,
    run: Option<Run>,
    failures: u32,
}

#[derive(Clone, Copy)]
struct Due {
    when: Instant,
    /// Whether this is a retry. Runs started by an event or a timer do not count as retries (FW-6).
    retry: bool,
}

#[derive(Clone, Copy)]
struct Run {
    retry: bool,
}

pub(super) struct Start<K> {
    pub(super) key: K,
    pub(super) attempt: Attempt,
    /// Whether this run retries a failed one.
    pub(super) retry: bool,
    /// Time since the run was due.
    pub(super) waited: Duration,
}

impl KeyState {
    /// The number of consecutive failures if the next run fails, or the one that just ended failed.
    fn failures_after(&self, retry: bool) -> u32 {
        if retry || self.failures == 0 {
            self.failures.saturating_add(1)
        } else {
            self.failures
        }
    }

    fn not_before(&self, when: Instant, min_interval: Duration) -> Instant {
        self.last_start
            .map_or(when, |last| when.max(last + min_interval))
    }
}

impl<K: Ord + Hash + Clone> Schedule<K> {
    pub(super) fn new(min_interval: Duration, retry: RetryPolicy) -> Self {
        Self {
            min_interval: min_interval.min(MAX_DELAY),
            retry,
            keys: HashMap::new(),
            due: BTreeSet::new(),
            idle: VecDeque::new(),
            in_flight: 0,
            closed: false,
        }
    }

    /// Plans a run no later than at `when`. Returns whether it is now the earliest of all.
    pub(super) fn plan(&mut self, key: K, when: Instant) -> bool {
        if self.closed {
            return false;
        }
        let state = self.keys.entry(key.clone()).or_default();
        let when = state.not_before(when, self.min_interval);
        let planned = state.due;
        if planned.is_some_and(|planned| planned.when < when) {
            return false;
        }
        state.due = Some(Due { when, retry: false });
        if state.run.is_some() {
            return false;
        }
        if let Some(planned) = planned {
            self.due.remove(&(planned.when, key.clone()));
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
        let state = self.keys.entry(key.clone()).or_default();
        let retry = state.due.take().is_some_and(|due| due.retry);
        let attempt = Attempt {
            failures: state.failures,
            last: !self.retry.allows(state.failures_after(retry)),
        };
        state.last_start = Some(now);
        state.run = Some(Run { retry });
        self.in_flight += 1;
        Some(Start {
            key,
            attempt,
            retry,
            waited: now.saturating_duration_since(when),
        })
    }

    /// Plans the next run after one that ended.
    pub(super) fn finish(&mut self, key: &K, outcome: RunOutcome, now: Instant) {
        let Some(state) = self.keys.get_mut(key) else {
            return;
        };
        let Some(run) = state.run.take() else {
            return;
        };
        self.in_flight -= 1;
        let (attempt, timer) = match outcome {
            RunOutcome::Done => (None, None),
            RunOutcome::RequeueAfter(after) => (None, Some(after)),
            RunOutcome::Failed { after, timer } => {
                let failures = state.failures_after(run.retry);
                let delay = after.unwrap_or_else(|| self.retry.delay(failures));
                (self.retry.allows(failures).then_some(delay), timer)
            }
        };
        state.failures = match outcome {
            RunOutcome::Failed { .. } => state.failures_after(run.retry),
            RunOutcome::Done | RunOutcome::RequeueAfter(_) => 0,
        };
        let attempt = attempt.map(|delay| (delay, true));
        let timer = timer.map(|delay| (delay, false));
        let first = attempt
            .into_iter()
            .chain(timer)
            .min_by_key(|(delay, _)| *delay);
        let timer = first.map(|(wait, retry)| Due {
            when: state.not_before(now + wait.min(MAX_DELAY), self.min_interval),
            retry,
        });
        state.due = match (state.due, timer) {
            (Some(event), Some(timer)) if timer.when < event.when => Some(timer),
            (event, timer) => event.or(timer),
        };
        if let Some(due) = state.due {
            self.due.insert((due.when, key.clone()));
        }
        self.idle.push_back((now + self.min_interval, key.clone()));
    }

    /// Starts no more runs.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// When to wake up; `None` without a free worker, because the end of a run wakes the queue.
    pub(super) fn wake_at(&self, free: bool) -> Option<Instant> {
        let due = self.due.first().filter(|_| !self.closed);
        let next = due.into_iter().chain(self.idle.front());
        next.map(|entry| entry.0).min().filter(|_| free)
    }

    pub(super) fn sizes(&self, now: Instant) -> QueueSizes {
        let ready = self.due.iter().take_while(|due| due.0 <= now).count();
        QueueSizes {
            ready,
            waiting: self.due.len() - ready,
            in_flight: self.in_flight,
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    fn drop_idle(&mut self, now: Instant) {
        while self.idle.front().is_some_and(|idle| idle.0 <= now) {
            let Some((_, key)) = self.idle.pop_front() else {
                return;
            };
            let idle = |state: &KeyState| {
                state.due.is_none() && state.run.is_none() && state.failures == 0
            };
            // A run that started after this entry was added adds another entry, a minimum interval later.
            let can_be_dropped =
                |state: &KeyState| idle(state) && state.not_before(now, self.min_interval) <= now;
            if self.keys.get(&key).is_some_and(can_be_dropped) {
                self.keys.remove(&key);
            }
        }
    }
}
