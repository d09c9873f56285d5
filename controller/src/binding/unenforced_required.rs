//! Required bindings whose webhook entries stay fail-open, and why (CFG-7).

use std::collections::{BTreeMap, BTreeSet};

use asya_shared::admission::Unenforced;
use parking_lot::Mutex;

use crate::record::Key;

/// Required bindings whose entries fail open, set by the task that maintains the webhook configurations.
#[derive(Debug, Default)]
pub struct UnenforcedRequiredBindings {
    /// `None` until set for the first time.
    current: Mutex<Option<BTreeMap<Key, Unenforced>>>,
}

/// Whether the webhook entry of a binding may fail closed, if it is required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// Not known yet, after a restart.
    #[default]
    Unknown,
    /// Nothing prevents it.
    Possible,
    /// The entry fails open for this reason.
    Impossible(Unenforced),
}

impl UnenforcedRequiredBindings {
    /// Sets the current bindings. Returns the actors that were added or removed, or whose reason has changed; the first
    /// time, all of them count as added.
    pub fn replace(&self, unenforced_required: BTreeMap<Key, Unenforced>) -> Vec<Key> {
        let mut current = self.current.lock();
        let previous = current.take().unwrap_or_default();
        let of = |all: &BTreeMap<Key, Unenforced>| -> BTreeSet<(Key, Unenforced)> {
            all.iter().map(|(key, why)| (key.clone(), *why)).collect()
        };
        let before = of(&previous);
        let now = of(&unenforced_required);
        let changed: BTreeSet<Key> = before
            .symmetric_difference(&now)
            .map(|(key, _)| key.clone())
            .collect();
        *current = Some(unenforced_required);
        changed.into_iter().collect()
    }

    /// Whether the webhook entry of the actor's binding may fail closed.
    pub fn enforcement(&self, actor: &Key) -> Enforcement {
        match self.current.lock().as_ref().map(|all| all.get(actor)) {
            None => Enforcement::Unknown,
            Some(None) => Enforcement::Possible,
            Some(Some(reason)) => Enforcement::Impossible(*reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use asya_shared::admission::Unenforced::{NoRoom, SelectorTooLarge};

    use super::{Enforcement, UnenforcedRequiredBindings};
    use crate::record::Key;

    /// CFG-7 (c)
    #[test]
    fn only_changed_actors_are_returned() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new("models", name));
        let unenforced_required = UnenforcedRequiredBindings::default();
        let replace = |all: &[(&Key, _)]| {
            let all = all.iter().map(|(key, why)| ((*key).clone(), *why));
            unenforced_required.replace(all.collect())
        };
        let enforcement = |actor| unenforced_required.enforcement(actor);
        assert_eq!(enforcement(&a), Enforcement::Unknown);
        let both = [(&a, NoRoom), (&b, NoRoom)];
        assert_eq!(replace(&both), [a.clone(), b.clone()]);
        assert_eq!(replace(&both), []);
        let others = [(&b, NoRoom), (&c, NoRoom)];
        assert_eq!(replace(&others), [a.clone(), c.clone()]);
        let other_reason = [(&b, SelectorTooLarge), (&c, NoRoom)];
        assert_eq!(replace(&other_reason), std::slice::from_ref(&b));
        assert_eq!(
            [&a, &b, &c].map(enforcement),
            [
                Enforcement::Possible,
                Enforcement::Impossible(SelectorTooLarge),
                Enforcement::Impossible(NoRoom)
            ]
        );
    }
}
