//! Which actor gets a queue name that several claim. Two actors that resolve to the same queue, or one to the other's
//! dead letter queue, would consume each other's messages: the actor that already has the queue gets it, otherwise the
//! older actor (QUE-3), unless the broker marks its queue as another's (QUE-35). A retired queue still holds its
//! actor's messages, so no other actor can claim its name, however old it is (QUE-13).
//!
//! Names are compared by broker address, because two transports may point to the same broker.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asya_shared::config::TransportsConfig;
use asya_shared::queue_claims::{
    self, Age, BrokerAddress, ClaimKind, Claimants, ClaimedName, Rank,
};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::record::{ActorRecord, Key};

/// The actor that holds a name that another actor needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueNameHolder {
    pub key: Key,
    /// Queue of the actor that needs the name.
    pub queue: String,
    /// What the actor needs the name for: [`ClaimKind::Queue`] or [`ClaimKind::DeadLetters`].
    pub contested: ClaimKind,
}

/// The names that actors claim at brokers.
#[derive(Debug, Default)]
pub struct QueueClaims {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    claims: HashMap<Key, Claim>,
    by_address: HashMap<BrokerAddress, Claimants>,
}

/// Names claimed by one actor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    age: Age,
    /// Whether the broker marks the actor's queue as another's.
    refused: bool,
    /// Without duplicates. The queue that the spec requests comes first, if the actor can have it.
    names: Vec<ClaimedName>,
}

impl QueueClaims {
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
        let mut affected = inner.drop_claim(key);
        if let Some(claim) = claim {
            inner.put_claim(key, claim);
            affected.extend(inner.competing_actors(key).cloned());
        }
        affected
    }

    /// Returns the holder of a name that `key` needs, unless `key` holds it itself.
    pub fn other_holder(&self, key: &Key) -> Option<QueueNameHolder> {
        let inner = self.inner.lock();
        let preceding = |are_dead_letters: bool| {
            let applies = |name: &ClaimedName| {
                name.desired && are_dead_letters == (name.kind == ClaimKind::DeadLetters)
            };
            inner.first_preceding(key, applies)
        };
        let (holder, contested) = match preceding(false) {
            Some(holder) => (holder, ClaimKind::Queue),
            None => (preceding(true)?, ClaimKind::DeadLetters),
        };
        Some(QueueNameHolder {
            key: holder,
            queue: inner.claims.get(key)?.names.first()?.queue.to_string(),
            contested,
        })
    }

    /// Returns the holder of this name, which `key` has, had or may have had as a queue, unless `key` holds it itself.
    /// A name that `key` does not claim belongs to whoever claims it.
    pub fn queue_name_holder_for(
        &self,
        transports: &TransportsConfig,
        (transport, queue): (&str, &str),
        key: &Key,
    ) -> Option<Key> {
        let address = queue_claims::broker_address(transports, transport, queue);
        let inner = self.inner.lock();
        if inner.has_claim(key, &address) {
            return inner.first_preceding(key, |name| name.address == address);
        }
        let claimants = inner.by_address.get(&address)?;
        let (_, holder) = claimants.first_competing_claimant(key, ClaimKind::Queue)?;
        Some(holder.clone())
    }
}

impl Claim {
    fn of(transports: &TransportsConfig, actor: &ActorRecord) -> Option<Self> {
        let Key { namespace, name } = &actor.metadata.key;
        let status = &actor.status_view;
        let recorded = queue_claims::recorded_queues(status.queue.as_ref(), &status.retired_queues);
        let transport = actor.transport.as_deref();
        let claim = Self {
            age: Arc::new((
                actor.created.as_ref().map_or(Timestamp::MIN, |time| time.0),
                actor.metadata.uid.clone(),
            )),
            refused: status.queue_marked_for_other,
            names: queue_claims::names(transports, (namespace, name), transport, recorded),
        };
        (!claim.names.is_empty()).then_some(claim)
    }

    /// The rank among the claimants of a name.
    fn rank(&self, name: &ClaimedName) -> Rank {
        Rank {
            priority: name.priority.after_answer(self.refused),
            age: Arc::clone(&self.age),
        }
    }

    /// The rank as if the broker had not marked the actor's queue. An actor whose queue is marked as another's defers
    /// to the same actors as before; otherwise two of them would take turns deferring to each other.
    fn rank_without_answer(&self, name: &ClaimedName) -> Rank {
        Rank {
            priority: name.priority,
            age: Arc::clone(&self.age),
        }
    }
}

impl Inner {
    fn put_claim(&mut self, key: &Key, claim: Claim) {
        for name in &claim.names {
            let claimants = self
                .by_address
                .entry(Arc::clone(&name.address))
                .or_default();
            claimants.insert(name.kind, claim.rank(name), key.clone());
        }
        self.claims.insert(key.clone(), claim);
    }

    /// Removes an actor's claim. Returns the actors that shared a name with it.
    fn drop_claim(&mut self, key: &Key) -> HashSet<Key> {
        let affected = self.competing_actors(key).cloned().collect();
        let Some(claim) = self.claims.remove(key) else {
            return affected;
        };
        for name in &claim.names {
            if let Some(claimants) = self.by_address.get_mut(&name.address) {
                claimants.remove(name.kind, claim.rank(name), key.clone());
                if claimants.is_empty() {
                    self.by_address.remove(&name.address);
                }
            }
        }
        affected
    }

    fn has_claim(&self, key: &Key, address: &BrokerAddress) -> bool {
        let claim = self.claims.get(key);
        claim.is_some_and(|claim| claim.names.iter().any(|name| name.address == *address))
    }

    /// Actors with which `key` cannot share a name. Sharing only a dead letter queue is allowed.
    fn competing_actors<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Key> {
        let claim = self.claims.get(key).into_iter();
        claim.flat_map(|claim| &claim.names).flat_map(move |own| {
            let claimants = self.by_address.get(&own.address).into_iter();
            claimants.flat_map(move |claimants| claimants.competing_claimants(key, own.kind))
        })
    }

    /// The highest-ranked actor that precedes `key` for any of these names.
    fn first_preceding(&self, key: &Key, applies: impl Fn(&ClaimedName) -> bool) -> Option<Key> {
        let claim = self.claims.get(key)?;
        let names = claim.names.iter().filter(|name| applies(name));
        names
            .filter_map(|name| {
                let first = self
                    .by_address
                    .get(&name.address)?
                    .first_competing_claimant(key, name.kind)?;
                (*first.0 < claim.rank_without_answer(name)).then_some(first)
            })
            .min()
            .map(|(_, actor)| actor.clone())
    }
}

#[cfg(test)]
mod tests;
