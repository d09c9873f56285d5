//! Actors whose children's names are taken by objects of others (SA-3), as this process has found out.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::record::Key;

/// What is known of each actor since the start.
#[derive(Default)]
pub struct ForeignNames(Mutex<HashMap<Key, bool>>);

impl ForeignNames {
    /// Whether something of others has the name of a child; `None`: nobody has looked yet.
    pub fn met_by(&self, actor: &Key) -> Option<bool> {
        self.lock().get(actor).copied()
    }

    /// A reconciliation has met one, or none.
    pub fn saw(&self, actor: &Key, met: bool) {
        self.lock().insert(actor.clone(), met);
    }

    /// The actor is gone.
    pub fn forget(&self, actor: &Key) {
        self.lock().remove(actor);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
