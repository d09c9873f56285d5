//! When the retired queues of an actor are looked at (QUE-13): not with every pass, but as often as the
//! health pass looks at the others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::record::Key;

/// The pace where there is no health pass to take it from.
const WITHOUT_HEALTH_PASS: Duration = Duration::from_mins(5);

/// When the retired queues of each actor are due.
pub struct RetiredQueueSchedule {
    interval: Duration,
    due: Mutex<HashMap<Key, Instant>>,
}

impl RetiredQueueSchedule {
    /// With the interval of the health pass, which is zero where there is none.
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

    /// How long until the next look; none after a start.
    pub fn wait(&self, actor: &Key) -> Duration {
        let due = self.lock().get(actor).copied();
        due.map_or(Duration::ZERO, |due| {
            due.saturating_duration_since(Instant::now())
        })
    }

    /// They were looked at, and the broker asks for another look after `sooner`, if it asks at all.
    /// Answers how long until the next.
    pub fn looked(&self, actor: &Key, sooner: Option<Duration>) -> Duration {
        let jittered = self.interval.mul_f64(0.9 + 0.2 * fastrand::f64());
        let wait = sooner.map_or(jittered, |sooner| sooner.min(jittered));
        self.lock().insert(actor.clone(), Instant::now() + wait);
        wait
    }

    /// There are none any more.
    pub fn forget(&self, actor: &Key) {
        self.lock().remove(actor);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// QUE-13
    #[tokio::test(start_paused = true)]
    async fn retired_queues_are_due_at_once_then_at_the_pace_of_the_health_pass() {
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
