//! Actors with a child whose name is taken by a foreign object (SA-3), as observed by this process.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::record::Key;

/// Last observation of each actor since startup.
#[derive(Default)]
pub struct ForeignNames(Mutex<HashMap<Key, bool>>);

impl ForeignNames {
    /// Whether a foreign object has the name of a child; `None` before the first observation.
    pub fn is_taken(&self, actor: &Key) -> Option<bool> {
        self.0.lock().get(actor).copied()
    }

    /// Records whether a reconcile found a foreign object.
    pub fn record(&self, actor: &Key, taken: bool) {
        self.0.lock().insert(actor.clone(), taken);
    }

    /// Drops a deleted actor.
    pub fn forget(&self, actor: &Key) {
        self.0.lock().remove(actor);
    }
}
