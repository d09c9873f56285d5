//! Bindings whose `ScaledObject` disappeared together with KEDA, as observed by this process (SO-6).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::record::Key;

/// Since when each `ScaledObject` is missing.
#[derive(Debug, Default)]
pub struct LostScaledObjects(Mutex<HashMap<Key, Instant>>);

impl LostScaledObjects {
    /// How long the actor's `ScaledObject` has been missing; zero before that is recorded.
    pub fn lost_for(&self, actor: &Key) -> Duration {
        self.0
            .lock()
            .get(actor)
            .map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Records whether a reconcile found the `ScaledObject` missing.
    pub fn record(&self, actor: &Key, lost: bool) {
        let mut all = self.0.lock();
        if !lost {
            all.remove(actor);
        } else if !all.contains_key(actor) {
            all.insert(actor.clone(), Instant::now());
        }
    }

    /// Drops a deleted actor.
    pub fn forget(&self, actor: &Key) {
        self.0.lock().remove(actor);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::LostScaledObjects;
    use crate::record::Key;

    /// SO-6
    #[tokio::test(start_paused = true)]
    async fn the_time_starts_when_the_scaled_object_is_first_missing() {
        let lost = LostScaledObjects::default();
        let actor = Key::new("ns", "a");
        let second = Duration::from_secs(1);
        assert_eq!(lost.lost_for(&actor), Duration::ZERO);
        lost.record(&actor, true);
        advance(second).await;
        lost.record(&actor, true);
        advance(second).await;
        assert_eq!(lost.lost_for(&actor), 2 * second);
        lost.record(&actor, false);
        advance(second).await;
        assert_eq!(lost.lost_for(&actor), Duration::ZERO, "it exists again");
        lost.record(&actor, true);
        advance(second).await;
        lost.forget(&actor);
        assert_eq!(lost.lost_for(&actor), Duration::ZERO, "another actor");
    }
}
