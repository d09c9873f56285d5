//! Which actor owns a queue's name. Two actors that resolve to one queue, or one to the other's dead
//! letter queue, would take each other's messages: who has it already owns it, else the older (QUE-3). A
//! retired queue still holds its actor's messages, so its name is nobody else's, however old (QUE-13).
//!
//! Names are told apart by where they are: two transports may lead to one broker.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asya_shared::claims::{self, Age, Name, Place, Rank, Use, Users};
use asya_shared::config::TransportsConfig;
use k8s_openapi::jiff::Timestamp;

use crate::record::{ActorRecord, Key};

/// Who owns a name that an actor needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The actor.
    pub key: Key,
    /// The queue of the one that needs it.
    pub queue: String,
    /// Whether that queue itself is the owner's, and not only its dead letter queue.
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

/// What one actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    age: Age,
    /// Each name once; first the queue that the spec asks for, where that can be had.
    names: Vec<Name>,
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

    /// The actor that owns a name before `key`, which needs it.
    pub fn owner_before(&self, key: &Key) -> Option<Owner> {
        let inner = self.lock();
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

    /// The actor that owns this name before `key`, which has or had a queue of that name.
    pub fn owner_of(
        &self,
        transports: &TransportsConfig,
        (transport, queue): (&str, &str),
        key: &Key,
    ) -> Option<Key> {
        let wanted = claims::place(transports, transport, queue);
        self.lock().first_before(key, |name| name.place == wanted)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic between two map operations leaves both usable: the next event of the actor repairs them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Answers who shared a name with it.
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

    /// Those with whom `key` cannot share a name: two that only share their dead letters can.
    fn rivals<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Key> {
        let claim = self.claims.get(key).into_iter();
        claim.flat_map(|claim| &claim.names).flat_map(move |own| {
            let users = self.by_place.get(&own.place).into_iter();
            users.flat_map(move |users| users.rivals(key, own.use_))
        })
    }

    /// Who owns one of these names before `key`; the first of several.
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
