//! Required bindings whose webhook entries stay fail-open, because there are too many of them (CFG-7).

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::record::Key;

/// Required bindings whose entries fail open, set by the task that maintains the webhook configurations.
#[derive(Debug, Default)]
pub struct UnenforcedRequiredBindings {
    /// `None` until set for the first time.
    current: Mutex<Option<BTreeSet<Key>>>,
}

impl UnenforcedRequiredBindings {
    /// Sets the current bindings. Returns the actors that were added or removed; the first time, all of them count as
    /// added.
    pub fn replace(&self, unenforced_required: BTreeSet<Key>) -> Vec<Key> {
        let mut current = self.current.lock();
        let previous = current.take().unwrap_or_default();
        let changed = previous
            .symmetric_difference(&unenforced_required)
            .cloned()
            .collect();
        *current = Some(unenforced_required);
        changed
    }

    /// Whether the actor's binding is one of these; `None` until the set is known.
    pub fn contains(&self, actor: &Key) -> Option<bool> {
        self.current.lock().as_ref().map(|all| all.contains(actor))
    }
}

#[cfg(test)]
mod tests {
    use super::UnenforcedRequiredBindings;
    use crate::record::Key;

    /// CFG-7 (c)
    #[test]
    fn only_changed_actors_are_returned() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new("models", name));
        let unenforced_required = UnenforcedRequiredBindings::default();
        let replace =
            |all: &[&Key]| unenforced_required.replace(all.iter().copied().cloned().collect());
        assert_eq!(unenforced_required.contains(&a), None);
        assert_eq!(replace(&[&a, &b]), [a.clone(), b.clone()]);
        assert_eq!(replace(&[&a, &b]), []);
        assert_eq!(replace(&[&b, &c]), [a.clone(), c.clone()]);
        assert_eq!(
            [&a, &b, &c].map(|actor| unenforced_required.contains(actor)),
            [Some(false), Some(true), Some(true)]
        );
    }
}
