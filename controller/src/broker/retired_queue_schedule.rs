//! When to check an actor's retired queues: not on every reconcile, but at the interval of the health check (QUE-13).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::record::Key;

/// Interval when the health check is disabled.
const DEFAULT_INTERVAL: Duration = Duration::from_mins(5);

/// When the retired queues of each actor are due for a check.
pub struct RetiredQueueSchedule {
    interval: Duration,
    due: Mutex<HashMap<Key, Instant>>,
}

impl RetiredQueueSchedule {
    /// Takes the interval of the health check, which is zero when that is disabled.
    pub fn new(interval: Duration) -> Self {
        let interval = if interval.is_zero() {
            DEFAULT_INTERVAL
        } else {
            interval
        };
        Self {
            interval,
            due: Mutex::default(),
        }
    }

    /// Time until the next check; zero after a restart.
    pub fn wait(&self, actor: &Key) -> Duration {
        let due = self.due.lock().get(actor).copied();
        due.map_or(Duration::ZERO, |due| {
            due.saturating_duration_since(Instant::now())
        })
    }

    /// Records a check; the broker may request the next one after `sooner`. Returns the time until the next check.
    pub fn record_check(&self, actor: &Key, sooner: Option<Duration>) -> Duration {
        let jittered = self.interval.mul_f64(0.9 + 0.2 * fastrand::f64());
        let wait = sooner.map_or(jittered, |sooner| sooner.min(jittered));
        self.due.lock().insert(actor.clone(), Instant::now() + wait);
        wait
    }

    /// Drops an actor without retired queues.
    pub fn forget(&self, actor: &Key) {
        self.due.lock().remove(actor);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// QUE-13
    #[tokio::test(start_paused = true)]
    async fn retired_queues_are_due_at_once_then_at_the_health_check_interval() {
        let seconds = Duration::from_secs;
        let (actor, other) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let schedule = RetiredQueueSchedule::new(seconds(100));
        assert_eq!(schedule.wait(&actor), Duration::ZERO);
        let wait = schedule.record_check(&actor, None);
        assert!((seconds(90)..=seconds(110)).contains(&wait), "{wait:?}");
        assert_eq!(schedule.wait(&actor), wait);
        assert_eq!(schedule.wait(&other), Duration::ZERO);
        sleep(wait).await;
        assert_eq!(schedule.wait(&actor), Duration::ZERO);
        assert_eq!(
            schedule.record_check(&actor, Some(seconds(10))),
            seconds(10)
        );
        schedule.forget(&actor);
        assert_eq!(schedule.wait(&actor), Duration::ZERO);
        let waits: Vec<_> = (0..100)
            .map(|_| schedule.record_check(&actor, None))
            .collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        let default_wait = RetiredQueueSchedule::new(Duration::ZERO).record_check(&actor, None);
        assert!(default_wait >= seconds(270), "{default_wait:?}");
    }
}
