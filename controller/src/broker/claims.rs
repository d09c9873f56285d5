//! Which actor owns a queue name. Two actors that resolve to the same queue, or one to the other's dead letter queue,
//! would consume each other's messages: the actor that already has the queue owns it, otherwise the older actor
//! (QUE-3). A retired queue still holds its actor's messages, so no other actor can claim its name, however old it is
//! (QUE-13).
//!
//! Names are compared by broker location, because two transports may point to the same broker.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asya_shared::claims::{self, Age, Name, Place, Rank, Use, Users};
use asya_shared::config::TransportsConfig;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::record::{ActorRecord, Key};

/// Owner of a name that another actor needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub key: Key,
    /// Queue of the actor that needs the name.
    pub queue: String,
    /// Whether the contested name is that queue itself rather than its dead letter queue.
    pub of_queue: bool,
}

/// The names that actors claim at brokers.
#[derive(Debug, Default)]
pub struct Claims {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    claims: HashMap<Key, Claim>,
    by_place: HashMap<Place, Users>,
}

/// Names claimed by one actor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    age: Age,
    /// Without duplicates. The queue that the spec asks for comes first, if the actor can have it.
    names: Vec<Name>,
}

impl Claims {
    /// Updates an actor's claims; `None` means that it was deleted. Returns the other actors affected.
    pub fn refresh(
        &self,
        transports: &TransportsConfig,
        key: &Key,
        actor: Option<&ActorRecord>,
    ) -> HashSet<Key> {
        let claim = actor.and_then(|actor| Claim::of(transports, actor));
        let mut inner = self.inner.lock();
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

    /// Returns the actor that takes precedence over `key` for a name that `key` needs.
    pub fn owner_before(&self, key: &Key) -> Option<Owner> {
        let inner = self.inner.lock();
        let of = |of_queue: bool| {
            let concerns = |name: &Name| name.wanted && of_queue == (name.use_ != Use::DeadLetters);
            inner.first_before(key, concerns)
        };
        let (owner, of_queue) = match of(true) {
            Some(owner) => (owner, true),
            None => (of(false)?, false),
        };
        Some(Owner {
            key: owner,
            queue: inner.claims.get(key)?.names.first()?.queue.to_string(),
            of_queue,
        })
    }

    /// Returns the actor that takes precedence over `key` for this name, which `key` has or had as a queue.
    pub fn owner_of(
        &self,
        transports: &TransportsConfig,
        (transport, queue): (&str, &str),
        key: &Key,
    ) -> Option<Key> {
        let wanted = claims::place(transports, transport, queue);
        self.inner
            .lock()
            .first_before(key, |name| name.place == wanted)
    }
}

impl Claim {
    fn of(transports: &TransportsConfig, actor: &ActorRecord) -> Option<Self> {
        let Key { namespace, name } = &actor.metadata.key;
        let told = &actor.told;
        let known = claims::known(told.queue.as_ref(), &told.retired_queues);
        let transport = actor.transport.as_deref();
        let claim = Self {
            age: Arc::new((
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.metadata.uid.clone(),
            )),
            names: claims::names(transports, (namespace, name), transport, known),
        };
        (!claim.names.is_empty()).then_some(claim)
    }

    fn rank(&self, name: &Name) -> Rank {
        Rank {
            grip: name.grip,
            age: Arc::clone(&self.age),
        }
    }
}

impl Inner {
    fn put_claim(&mut self, key: &Key, claim: Claim) {
        for name in &claim.names {
            let users = self.by_place.entry(Arc::clone(&name.place)).or_default();
            users.insert(name.use_, claim.rank(name), key.clone());
        }
        self.claims.insert(key.clone(), claim);
    }

    /// Returns the actors that shared a name with it.
    fn drop_claim(&mut self, key: &Key) -> HashSet<Key> {
        let concerned = self.rivals(key).cloned().collect();
        let Some(claim) = self.claims.remove(key) else {
            return concerned;
        };
        for name in &claim.names {
            if let Some(users) = self.by_place.get_mut(&name.place) {
                users.remove(name.use_, claim.rank(name), key.clone());
                if users.is_empty() {
                    self.by_place.remove(&name.place);
                }
            }
        }
        concerned
    }

    /// Actors with which `key` cannot share a name. Sharing only a dead letter queue is allowed.
    fn rivals<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Key> {
        let claim = self.claims.get(key).into_iter();
        claim.flat_map(|claim| &claim.names).flat_map(move |own| {
            let users = self.by_place.get(&own.place).into_iter();
            users.flat_map(move |users| users.rivals(key, own.use_))
        })
    }

    /// The highest-ranked actor that precedes `key` for any of these names.
    fn first_before(&self, key: &Key, concerns: impl Fn(&Name) -> bool) -> Option<Key> {
        let claim = self.claims.get(key)?;
        let names = claim.names.iter().filter(|name| concerns(name));
        names
            .filter_map(|name| {
                let first = self
                    .by_place
                    .get(&name.place)?
                    .first_rival(key, name.use_)?;
                (*first.0 < claim.rank(name)).then_some(first)
            })
            .min()
            .map(|(_, rival)| rival.clone())
    }
}

#[cfg(test)]
mod tests;
