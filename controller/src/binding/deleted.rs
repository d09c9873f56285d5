//! Deleted bindings. They are remembered for a while, because a webhook replica whose watch is behind does
//! not know that the actor is gone, and still injects its sidecar (BIND-43).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::resolve::Target;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::record::Key;

/// How long a binding is remembered after its deletion.
const REMEMBERED: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub struct DeletedBinding {
    pub actor_uid: Box<str>,
    /// The target at the time of the deletion.
    pub target: Target,
    pub deleted_at: Timestamp,
}

/// The bindings that were deleted in the last ten minutes.
#[derive(Debug, Default)]
pub struct DeletedBindings(Mutex<HashMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    binding: Arc<DeletedBinding>,
    last_eviction: Option<Timestamp>,
}

impl DeletedBindings {
    pub fn record(&self, actor: &Key, binding: DeletedBinding) {
        let now = binding.deleted_at;
        let entry = Entry {
            binding: Arc::new(binding),
            last_eviction: None,
        };
        let mut all = self.0.lock();
        all.retain(|_, entry| !entry.is_over(now));
        all.insert(actor.clone(), entry);
    }

    /// The actor's last binding, and when a pod was last evicted because of it.
    pub fn get(
        &self,
        actor: &Key,
        now: Timestamp,
    ) -> Option<(Arc<DeletedBinding>, Option<Timestamp>)> {
        let all = self.0.lock();
        let entry = all.get(actor).filter(|entry| !entry.is_over(now))?;
        Some((Arc::clone(&entry.binding), entry.last_eviction))
    }

    pub fn record_eviction(&self, actor: &Key, now: Timestamp) {
        if let Some(entry) = self.0.lock().get_mut(actor) {
            entry.last_eviction = Some(now);
        }
    }
}

impl Entry {
    fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.binding.deleted_at).unsigned_abs() > REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;

    use super::{DeletedBinding, DeletedBindings};
    use crate::reconcile::tests::fixtures::target;
    use crate::record::Key;

    /// BIND-43
    #[test]
    fn bindings_are_remembered_for_ten_minutes() {
        let deleted = DeletedBindings::default();
        let a = Key::new("ns", "a");
        let b = Key::new("ns", "b");
        let at = |seconds| Timestamp::UNIX_EPOCH + Duration::from_secs(seconds);
        let binding = |deleted_at| DeletedBinding {
            actor_uid: "1".into(),
            target: target(),
            deleted_at,
        };
        deleted.record(&a, binding(at(0)));
        deleted.record_eviction(&a, at(60));
        let last_eviction = deleted.get(&a, at(600)).and_then(|(_, last)| last);
        assert_eq!(last_eviction, Some(at(60)));
        assert!(deleted.get(&a, at(601)).is_none());
        deleted.record(&b, binding(at(601)));
        assert_eq!(deleted.0.lock().len(), 1, "the other one is dropped");
    }
}
