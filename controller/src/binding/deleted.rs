//! Bindings whose actor is gone. They are remembered for a while, because a webhook replica whose watch is behind does
//! not know that the actor is gone, and still injects its sidecar (BIND-43).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::resolve::Target;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::record::Key;

/// How long a binding is remembered after its actor is gone.
const REMEMBERED: Duration = Duration::from_mins(10);

/// A binding whose actor is gone.
#[derive(Debug)]
pub struct EndedBinding {
    pub actor_uid: Box<str>,
    /// As it was when the actor was deleted.
    pub target: Target,
    pub ended_at: Timestamp,
}

/// The bindings that ended in the last ten minutes.
#[derive(Debug, Default)]
pub struct EndedBindings(Mutex<HashMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    binding: Arc<EndedBinding>,
    last_eviction: Option<Timestamp>,
}

impl EndedBindings {
    pub fn record(&self, actor: &Key, binding: EndedBinding) {
        let now = binding.ended_at;
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
    ) -> Option<(Arc<EndedBinding>, Option<Timestamp>)> {
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
        now.duration_since(self.binding.ended_at).unsigned_abs() > REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;

    use super::{EndedBinding, EndedBindings};
    use crate::reconcile::tests::fixtures::target;
    use crate::record::Key;

    /// BIND-43
    #[test]
    fn bindings_are_remembered_for_ten_minutes() {
        let ended = EndedBindings::default();
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let at = |seconds| Timestamp::UNIX_EPOCH + Duration::from_secs(seconds);
        let binding = |ended_at| EndedBinding {
            actor_uid: "1".into(),
            target: target(),
            ended_at,
        };
        ended.record(&a, binding(at(0)));
        ended.record_eviction(&a, at(60));
        let last_eviction = ended.get(&a, at(600)).and_then(|(_, last)| last);
        assert_eq!(last_eviction, Some(at(60)));
        assert!(ended.get(&a, at(601)).is_none());
        ended.record(&b, binding(at(601)));
        assert_eq!(ended.0.lock().len(), 1, "the other one is dropped");
    }
}
