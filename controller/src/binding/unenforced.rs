//! Required bindings whose webhook entries stay fail-open, because there are too many of them (CFG-7).

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::record::Key;

/// The set of these bindings, set by the task that maintains the webhook configurations.
#[derive(Debug, Default)]
pub struct Unenforced {
    /// `None` until it was set for the first time.
    now: Mutex<Option<BTreeSet<Key>>>,
}

impl Unenforced {
    /// Sets the current bindings. Returns the actors that were added or removed; the first time, all of them count as
    /// added.
    pub fn tell(&self, now: BTreeSet<Key>) -> Vec<Key> {
        let mut known = self.now.lock();
        let before = known.take().unwrap_or_default();
        let news = before.symmetric_difference(&now).cloned().collect();
        *known = Some(now);
        news
    }

    /// Whether it is not enforced; `None` until the set is known.
    pub fn has(&self, actor: &Key) -> Option<bool> {
        self.now.lock().as_ref().map(|all| all.contains(actor))
    }
}

#[cfg(test)]
mod tests {
    use super::Unenforced;
    use crate::record::Key;

    /// CFG-7
    #[test]
    fn only_changed_actors_are_returned() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new("models", name));
        let surplus = Unenforced::default();
        let tell = |all: &[&Key]| surplus.tell(all.iter().copied().cloned().collect());
        assert_eq!(surplus.has(&a), None);
        assert_eq!(tell(&[&a, &b]), [a.clone(), b.clone()]);
        assert_eq!(tell(&[&a, &b]), []);
        assert_eq!(tell(&[&b, &c]), [a.clone(), c.clone()]);
        assert_eq!(
            [&a, &b, &c].map(|it| surplus.has(it)),
            [Some(false), Some(true), Some(true)]
        );
    }
}
