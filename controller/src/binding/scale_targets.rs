//! Which actors scale an object with a given name, so that other autoscalers of it enqueue them (SO-3).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::record::Key;

/// Scaled objects by namespace and name.
#[derive(Debug, Default)]
pub(super) struct ScaleTargets(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_actor: HashMap<Key, Arc<str>>,
    by_target: HashMap<Key, BTreeSet<Key>>,
}

impl ScaleTargets {
    /// Sets the name of the object that the actor scales; `None` if it scales none.
    pub(super) fn set(&self, actor: &Key, name: Option<&str>) {
        let mut inner = self.0.lock();
        if inner.by_actor.get(actor).map(|current| &**current) == name {
            return;
        }
        if let Some(previous) = inner.by_actor.remove(actor) {
            let previous = Key::new(&actor.namespace, &previous);
            if let Some(actors) = inner.by_target.get_mut(&previous) {
                actors.remove(actor);
                if actors.is_empty() {
                    inner.by_target.remove(&previous);
                }
            }
        }
        if let Some(name) = name {
            inner.by_actor.insert(actor.clone(), name.into());
            let scaled = Key::new(&actor.namespace, name);
            let actors = inner.by_target.entry(scaled).or_default();
            actors.insert(actor.clone());
        }
    }

    /// Actors that scale the object with this name.
    pub(super) fn actors_of(&self, scaled: &Key) -> Vec<Key> {
        let inner = self.0.lock();
        let actors = inner.by_target.get(scaled).into_iter().flatten();
        actors.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::ScaleTargets;
    use crate::record::Key;

    /// SO-3
    #[test]
    fn actors_are_looked_up_by_the_name_of_the_object_they_scale() {
        let targets = ScaleTargets::default();
        let actor = Key::new("ns", "a");
        let is_scaled = |name| targets.actors_of(&Key::new("ns", name)).contains(&actor);
        targets.set(&actor, Some("web"));
        targets.set(&Key::new("other", "b"), Some("web"));
        assert!(is_scaled("web") && !is_scaled("next"));
        targets.set(&actor, Some("next"));
        assert!(!is_scaled("web") && is_scaled("next"));
        targets.set(&actor, None);
        assert!(!is_scaled("next"));
        assert!(
            targets.0.lock().by_target.len() == 1,
            "entries without actors are removed"
        );
    }
}
