//! When to check an actor's retired queues (QUE-13): not on every reconcile, but as often as the health check looks at
//! the others.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::record::Key;

/// Interval when the health check is disabled.
const WITHOUT_HEALTH_PASS: Duration = Duration::from_mins(5);

/// When the retired queues of each actor are due for a check.
pub struct RetiredQueueSchedule {
    interval: Duration,
    due: Mutex<HashMap<Key, Instant>>,
}

impl RetiredQueueSchedule {
    /// Takes the interval of the health check, which is zero when that is disabled.
    pub fn new(interval: Duration) -> Self {
        let interval = if interval.is_zero() {
            WITHOUT_HEALTH_PASS
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

    /// Records a check; the broker may ask for the next one after `sooner`. Returns the time until the next check.
    pub fn looked(&self, actor: &Key, sooner: Option<Duration>) -> Duration {
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
        let looks = RetiredQueueSchedule::new(seconds(100));
        assert_eq!(looks.wait(&actor), Duration::ZERO);
        let wait = looks.looked(&actor, None);
        assert!((seconds(90)..=seconds(110)).contains(&wait), "{wait:?}");
        assert_eq!(looks.wait(&actor), wait);
        assert_eq!(looks.wait(&other), Duration::ZERO);
        sleep(wait).await;
        assert_eq!(looks.wait(&actor), Duration::ZERO);
        assert_eq!(looks.looked(&actor, Some(seconds(10))), seconds(10));
        looks.forget(&actor);
        assert_eq!(looks.wait(&actor), Duration::ZERO);
        let never = RetiredQueueSchedule::new(Duration::ZERO).looked(&actor, None);
        assert!(never >= seconds(270), "{never:?}");
    }
}
