//! Which actors scale an object with a given name, so that other autoscalers of it concern them (SO-3).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::record::Key;

/// Scaled objects by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Scaled(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_actor: HashMap<Key, Arc<str>>,
    actors: HashMap<Key, BTreeSet<Key>>,
}

impl Scaled {
    /// Sets the name of the object that the actor scales; `None` if it scales none.
    pub(super) fn by(&self, actor: &Key, name: Option<&str>) {
        let mut inner = self.0.lock();
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

    /// Actors that scale the object with this name.
    pub(super) fn actors_of(&self, scaled: &Key) -> Vec<Key> {
        let inner = self.0.lock();
        let actors = inner.actors.get(scaled).into_iter().flatten();
        actors.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Scaled;
    use crate::record::Key;

    /// SO-3
    #[test]
    fn actor_is_found_by_the_name_of_the_object_it_scales() {
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
            scaled.0.lock().actors.len() == 1,
            "nothing is kept of who scales nothing"
        );
    }
}
