//! How many targets are rolled at a time in the whole cluster (ROLL-2).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record::Key;

/// Actors whose targets are being rolled.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    /// With how often in a row an eviction was refused.
    taken: Mutex<HashMap<Key, u32>>,
}

impl Slots {
    /// So many at a time.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            taken: Mutex::default(),
        }
    }

    /// Whether the actor's target is among them, or may be.
    pub fn has_room_for(&self, actor: &Key) -> bool {
        let taken = self.lock();
        taken.contains_key(actor) || taken.len() < self.most
    }

    /// It is one of them from now on, also beyond what may be: what runs cannot be called back.
    pub fn hold(&self, actor: &Key) {
        self.lock().entry(actor.clone()).or_default();
    }

    /// An eviction was refused. Answers how often before, in a row.
    pub fn refused(&self, actor: &Key) -> u32 {
        let mut taken = self.lock();
        let times = taken.entry(actor.clone()).or_default();
        *times = times.saturating_add(1);
        *times - 1
    }

    /// An eviction was granted.
    pub fn granted(&self, actor: &Key) {
        self.lock().insert(actor.clone(), 0);
    }

    /// It is none of them any more.
    pub fn release(&self, actor: &Key) {
        self.lock().remove(actor);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;
    use crate::record::Key;

    /// ROLL-2
    #[test]
    fn only_so_many_targets_are_rolled_at_a_time() {
        let slots = Slots::new(1);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        assert!(slots.has_room_for(&a) && slots.has_room_for(&b));
        slots.hold(&a);
        assert!(slots.has_room_for(&a) && !slots.has_room_for(&b));
        assert_eq!((slots.refused(&a), slots.refused(&a)), (0, 1));
        slots.granted(&a);
        assert_eq!(slots.refused(&a), 0);
        slots.release(&a);
        assert!(slots.has_room_for(&b));
    }
}
