//! Actors that wait for a rollout slot, in the order in which they began to wait.

use std::collections::{BTreeMap, HashMap};

use crate::record::Key;

/// A queue that holds an actor at most once. No operation scans it, because all actors of an installation may wait, and
/// each of their reconciles uses it.
#[derive(Debug, Default)]
pub struct WaitingActors {
    next_turn: u64,
    by_turn: BTreeMap<u64, Key>,
    turns: HashMap<Key, u64>,
}

impl WaitingActors {
    pub fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// Queues an actor. One that is queued keeps its turn.
    pub fn push(&mut self, actor: &Key) {
        if self.turns.contains_key(actor) {
            return;
        }
        self.turns.insert(actor.clone(), self.next_turn);
        self.by_turn.insert(self.next_turn, actor.clone());
        self.next_turn += 1;
    }

    /// Removes an actor, wherever it is.
    pub fn remove(&mut self, actor: &Key) {
        if let Some(turn) = self.turns.remove(actor) {
            self.by_turn.remove(&turn);
        }
    }

    /// Removes and returns those for which `takes` is true, the longest waiting first, and at most `limit`.
    pub fn take(&mut self, limit: usize, mut takes: impl FnMut(&Key) -> bool) -> Vec<Key> {
        let chosen = self.by_turn.values().filter(|actor| takes(actor));
        let chosen: Vec<Key> = chosen.take(limit).cloned().collect();
        for actor in &chosen {
            self.remove(actor);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::WaitingActors;
    use crate::record::Key;

    /// SAFE-15, SAFE-36
    #[test]
    fn actors_are_taken_in_the_order_in_which_they_began_to_wait() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| Key::new("ns", name));
        let mut waiting = WaitingActors::default();
        for actor in [&a, &b, &a, &c, &d] {
            waiting.push(actor);
        }
        waiting.remove(&b);
        waiting.push(&b);
        assert_eq!(waiting.take(1, |_| true), [&a].map(Key::clone));
        assert_eq!(waiting.take(2, |it| *it != c), [&d, &b].map(Key::clone));
        waiting.push(&a);
        waiting.remove(&d);
        assert!(!waiting.is_empty());
        assert_eq!(waiting.take(9, |_| true), [&c, &a].map(Key::clone));
        assert!(waiting.is_empty());
    }
}
