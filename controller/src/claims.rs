//! Which actor owns a queue's name. Two actors that resolve to one queue, or one to the other's dead
//! letter queue, would take each other's messages: the older owns it (QUE-3).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asya_shared::config::TransportsConfig;
use k8s_openapi::jiff::Timestamp;

use crate::record::{ActorRecord, Key};

/// The names that actors claim at brokers.
#[derive(Debug, Default)]
pub struct Claims {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    claims: HashMap<Key, Claim>,
    by_name: HashMap<Place, BTreeMap<Key, Use>>,
}

/// A queue's name on a transport.
type Place = (Arc<str>, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Queue,
    DeadLetters,
}

/// What one actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// The older wins; among those of one second the smaller uid.
    age: (Timestamp, Box<str>),
    queue: Place,
    dead_letters: Option<Place>,
}

impl Claims {
    /// Takes the newest record of an actor, or that it is gone. Answers who else is concerned.
    pub fn refresh(
        &self,
        transports: &TransportsConfig,
        key: &Key,
        actor: Option<&ActorRecord>,
    ) -> HashSet<Key> {
        let claim = actor.and_then(|actor| Claim::of(transports, actor));
        let mut inner = self.lock();
        if inner.claims.get(key) == claim.as_ref() {
            return HashSet::new();
        }
        let mut concerned = inner.drop_claim(key);
        if let Some(claim) = claim {
            inner.put_claim(key, claim);
            concerned.extend(inner.rivals(key).cloned());
        }
        concerned
    }

    /// The actor that owns the queue of `key` before it, and the name that both want.
    pub fn owner_before(&self, key: &Key) -> Option<(Key, String)> {
        let inner = self.lock();
        let own = inner.claims.get(key)?;
        let older = inner
            .rivals(key)
            .filter_map(|rival| Some((rival, inner.claims.get(rival)?)));
        let oldest = older.min_by(|one, other| one.1.age.cmp(&other.1.age))?;
        (oldest.1.age < own.age).then(|| (oldest.0.clone(), own.queue.1.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic between two map operations leaves both usable: the next event of the actor repairs them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    fn of(transports: &TransportsConfig, actor: &ActorRecord) -> Option<Self> {
        let transport = transports.usable(actor.transport.as_deref()?).ok()?;
        let Key { namespace, name } = &actor.metadata.key;
        let names = transport.names_of(namespace, name);
        let on: Arc<str> = transport.name.as_str().into();
        Some(Self {
            age: (
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.metadata.uid.clone(),
            ),
            // A dead letter queue that all share is nobody's own, but still no actor's queue.
            dead_letters: names.dlq.map(|dlq| (Arc::clone(&on), dlq)),
            queue: (on, names.queue),
        })
    }

    fn places(&self) -> impl Iterator<Item = (&Place, Use)> {
        let dead_letters = self
            .dead_letters
            .iter()
            .map(|place| (place, Use::DeadLetters));
        std::iter::once((&self.queue, Use::Queue)).chain(dead_letters)
    }
}

impl Inner {
    fn put_claim(&mut self, key: &Key, claim: Claim) {
        for (place, use_) in claim.places() {
            self.by_name
                .entry(place.clone())
                .or_default()
                .insert(key.clone(), use_);
        }
        self.claims.insert(key.clone(), claim);
    }

    /// Answers who shared a name with it.
    fn drop_claim(&mut self, key: &Key) -> HashSet<Key> {
        let concerned = self.rivals(key).cloned().collect();
        let Some(claim) = self.claims.remove(key) else {
            return concerned;
        };
        for (place, _) in claim.places() {
            if let Some(users) = self.by_name.get_mut(place) {
                users.remove(key);
                if users.is_empty() {
                    self.by_name.remove(place);
                }
            }
        }
        concerned
    }

    /// Those with whom `key` cannot share: two that only share their dead letters can.
    fn rivals<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Key> {
        let places = self.claims.get(key).into_iter().flat_map(Claim::places);
        places.flat_map(move |(place, own)| {
            let users = self.by_name.get(place).into_iter().flatten();
            users
                .filter(move |(user, use_)| {
                    *user != key && (own, **use_) != (Use::DeadLetters, Use::DeadLetters)
                })
                .map(|(user, _)| user)
        })
    }
}

#[cfg(test)]
mod tests;
