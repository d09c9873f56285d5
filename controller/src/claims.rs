//! Which actor owns a queue's name. Two actors that resolve to one queue, or one to the other's dead
//! letter queue, would take each other's messages: the older owns it (QUE-3). A retired queue still holds
//! its actor's messages, so its name is nobody else's, however old (QUE-13).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use asya_shared::claims::{self, Name, Place, Use};
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

/// Of two the smaller owns a name: who holds a retired queue before the others, then the older; among
/// those of one second the smaller uid.
type Rank<'a> = (bool, &'a (Timestamp, Box<str>));

/// What one actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    age: (Timestamp, Box<str>),
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
            concerned.extend(inner.rivals(key).map(|(rival, _)| rival.clone()));
        }
        concerned
    }

    /// The actor that owns the queue of `key` before it, and the name that both want.
    pub fn owner_before(&self, key: &Key) -> Option<(Key, String)> {
        let inner = self.lock();
        let owner = inner.first_before(key, |name| name.wanted)?;
        let queue = &inner.claims.get(key)?.names.first()?.place.1;
        Some((owner, queue.clone()))
    }

    /// The actor that owns this name before `key`, which has or had a queue of that name.
    pub fn owner_of(&self, transport: &str, queue: &str, key: &Key) -> Option<Key> {
        let is_it = |Name { place, .. }: &Name| (&*place.0, &*place.1) == (transport, queue);
        self.lock().first_before(key, is_it)
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
        let retired = told.retired_queues.iter();
        let known = retired
            .map(|queue| (queue, Use::Retired))
            .chain(told.queue.iter().map(|queue| (queue, Use::Queue)))
            .map(|(queue, use_)| (&*queue.transport, &*queue.name, use_));
        let transport = actor.transport.as_deref();
        let claim = Self {
            age: (
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.metadata.uid.clone(),
            ),
            names: claims::names(transports, (namespace, name), transport, known),
        };
        (!claim.names.is_empty()).then_some(claim)
    }
}

impl Inner {
    fn put_claim(&mut self, key: &Key, claim: Claim) {
        for Name { place, use_, .. } in &claim.names {
            self.by_name
                .entry(place.clone())
                .or_default()
                .insert(key.clone(), *use_);
        }
        self.claims.insert(key.clone(), claim);
    }

    /// Answers who shared a name with it.
    fn drop_claim(&mut self, key: &Key) -> HashSet<Key> {
        let concerned = self.rivals(key).map(|(rival, _)| rival.clone()).collect();
        let Some(claim) = self.claims.remove(key) else {
            return concerned;
        };
        for Name { place, .. } in &claim.names {
            if let Some(users) = self.by_name.get_mut(place) {
                users.remove(key);
                if users.is_empty() {
                    self.by_name.remove(place);
                }
            }
        }
        concerned
    }

    /// Those with whom `key` cannot share, and which name: two that only share their dead letters can.
    fn rivals<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = (&'a Key, &'a Name)> {
        let claim = self.claims.get(key).into_iter();
        claim.flat_map(|claim| &claim.names).flat_map(move |own| {
            let users = self.by_name.get(&own.place).into_iter().flatten();
            users
                .filter(move |(user, use_)| *user != key && !own.use_.is_shared_with(**use_))
                .map(move |(user, _)| (user, own))
        })
    }

    /// Who owns one of these names before `key`; the first of several.
    fn first_before(&self, key: &Key, concerns: impl Fn(&Name) -> bool) -> Option<Key> {
        let rivals = self.rivals(key).filter(|(_, name)| concerns(name));
        rivals
            .filter_map(|(rival, Name { place, .. })| {
                let theirs = self.rank(rival, place)?;
                (theirs < self.rank(key, place)?).then_some((theirs, rival))
            })
            .min()
            .map(|(_, rival)| rival.clone())
    }

    fn rank<'a>(&'a self, key: &Key, place: &Place) -> Option<Rank<'a>> {
        let claim = self.claims.get(key)?;
        let use_ = self.by_name.get(place)?.get(key)?;
        Some((*use_ != Use::Retired, &claim.age))
    }
}

#[cfg(test)]
mod tests;
