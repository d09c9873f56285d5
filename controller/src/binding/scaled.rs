//! Which actors' queues scale an object of a name: who else scales it concerns them (SO-3).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::record::Key;

/// Targets that are scaled, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Scaled(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_actor: HashMap<Key, Arc<str>>,
    actors: HashMap<Key, BTreeSet<Key>>,
}

impl Scaled {
    /// From now on the actor scales what has this name; `None`: nothing.
    pub(super) fn by(&self, actor: &Key, name: Option<&str>) {
        let mut inner = self.lock();
        if inner.by_actor.get(actor).map(|it| &**it) == name {
            return;
        }
        if let Some(before) = inner.by_actor.remove(actor) {
            let before = Key::new(&actor.namespace, &before);
            if let Some(actors) = inner.actors.get_mut(&before) {
                actors.remove(actor);
                if actors.is_empty() {
                    inner.actors.remove(&before);
                }
            }
        }
        if let Some(name) = name {
            inner.by_actor.insert(actor.clone(), name.into());
            let scaled = Key::new(&actor.namespace, name);
            let actors = inner.actors.entry(scaled).or_default();
            actors.insert(actor.clone());
        }
    }

    /// Who scales what has this name.
    pub(super) fn actors_of(&self, scaled: &Key) -> Vec<Key> {
        let inner = self.lock();
        let actors = inner.actors.get(scaled).into_iter().flatten();
        actors.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Scaled;
    use crate::record::Key;

    /// SO-3
    #[test]
    fn who_scales_an_object_is_known_until_he_scales_another_or_none() {
        let (scaled, actor) = (Scaled::default(), Key::new("ns", "a"));
        let of = |name| scaled.actors_of(&Key::new("ns", name)).contains(&actor);
        scaled.by(&actor, Some("web"));
        scaled.by(&Key::new("other", "b"), Some("web"));
        assert!(of("web") && !of("next"));
        scaled.by(&actor, Some("next"));
        assert!(!of("web") && of("next"));
        scaled.by(&actor, None);
        assert!(!of("next"));
        assert!(
            scaled.lock().actors.len() == 1,
            "nothing is kept of who scales nothing"
        );
    }
}
