//! Required bindings whose entries stay fail-open, because there are too many of them (CFG-7).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record::Key;

/// They; told by the task that keeps the webhook configurations.
#[derive(Debug, Default)]
pub struct Unenforced {
    /// None before anybody has told.
    now: Mutex<Option<BTreeSet<Key>>>,
}

impl Unenforced {
    /// Takes who they are now. Answers for whom that is news, the first time only whom it is bad news for.
    pub fn tell(&self, now: BTreeSet<Key>) -> Vec<Key> {
        let mut known = self.lock();
        let before = known.take().unwrap_or_default();
        let news = before.symmetric_difference(&now).cloned().collect();
        *known = Some(now);
        news
    }

    /// Whether it is one of them; `None` before anybody has told.
    pub fn has(&self, actor: &Key) -> Option<bool> {
        self.lock().as_ref().map(|all| all.contains(actor))
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeSet<Key>>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Unenforced;
    use crate::record::Key;

    /// CFG-7
    #[test]
    fn those_are_told_for_whom_something_has_changed() {
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
