//! Cluster-wide limit on concurrent rollouts of targets (ROLL-2, SAFE-15, SAFE-16).
//!
//! A *rollout slot* is the permission to replace pods: an actor acquires one before its first write or eviction, and
//! holds it until its rollout has ended or the slot expires. Targets share these slots. The operator's own workloads
//! share those of [`crate::cluster::rollouts`] (SAFE-36).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use asya_shared::backoff::Backoff;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::clock_skew::time_left;
use crate::cluster::waiting_actors::WaitingActors;
use crate::record::Key;

/// A target that makes no progress for this long no longer blocks others (SAFE-15).
pub const MAX_SLOT_TIME: Duration = Duration::from_hours(1);
const MAX_REFUSAL_WAIT: Duration = Duration::from_mins(5);
/// Backoff after an eviction was refused, by the number of earlier refusals in a row (ROLL-4).
const REFUSAL_BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), MAX_REFUSAL_WAIT);

/// The slots of all targets.
#[derive(Debug)]
pub struct RolloutSlots {
    max: usize,
    max_per_namespace: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Expiry of each slot by the actor that holds it, so that a stuck rollout does not block others.
    by_actor: HashMap<Key, Timestamp>,
    /// The last eviction of each actor's target, if it was refused.
    refusals: HashMap<Key, Refusals>,
    waiting: WaitingActors,
}

#[derive(Debug)]
struct Refusals {
    in_a_row: u32,
    last: RefusedEviction,
}

/// An eviction that the API server refused, for example because of a `PodDisruptionBudget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedEviction {
    /// What to report until it is requested again.
    pub message: String,
    pub retry_at: Timestamp,
}

impl RefusedEviction {
    /// How long not to request it again; `None` if it may be requested now.
    pub fn time_left(&self, now: Timestamp) -> Option<Duration> {
        time_left(self.retry_at, MAX_REFUSAL_WAIT, now)
    }
}

impl RolloutSlots {
    /// Limits concurrent rollouts to `max`, and to half of that per namespace, so that no tenant can hold all slots.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            max_per_namespace: max.div_ceil(2),
            inner: Mutex::default(),
        }
    }

    /// Whether the actor holds a slot or can take one.
    pub fn can_acquire(&self, actor: &Key, now: Timestamp) -> bool {
        let holders = self.inner.lock().holders(now);
        holders.contains(actor) || self.is_free(&holders, actor)
    }

    pub fn holds(&self, actor: &Key, now: Timestamp) -> bool {
        let inner = self.inner.lock();
        let until = inner.by_actor.get(actor);
        until.is_some_and(|until| is_held(*until, now))
    }

    /// Takes a slot until `until`, even beyond the limit, because a write cannot be undone.
    pub fn acquire(&self, actor: &Key, until: Timestamp) {
        let mut inner = self.inner.lock();
        inner.leave(actor);
        inner.by_actor.insert(actor.clone(), until);
    }

    pub fn release(&self, actor: &Key) {
        self.inner.lock().leave(actor);
    }

    /// Queues an actor until [`Self::dequeue_waiting`] returns it. An actor that is queued keeps its place.
    pub fn wait(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        inner.by_actor.remove(actor);
        inner.waiting.push(actor);
    }

    /// Removes and returns the actors that have waited longest, one per free slot, to be enqueued now. If another actor
    /// takes a slot first, they wait again.
    pub fn dequeue_waiting(&self, now: Timestamp) -> Vec<Key> {
        let mut inner = self.inner.lock();
        if inner.waiting.is_empty() {
            return Vec::new();
        }
        let mut holders = inner.holders(now);
        let free = self.max.saturating_sub(holders.len());
        inner.waiting.take(free, |actor| {
            let is_free = self.is_free(&holders, actor);
            if is_free {
                holders.insert(actor.clone());
            }
            is_free
        })
    }

    fn is_free(&self, holders: &HashSet<Key>, actor: &Key) -> bool {
        let in_namespace = holders
            .iter()
            .filter(|key| key.namespace == actor.namespace);
        holders.len() < self.max && in_namespace.count() < self.max_per_namespace
    }

    /// Records a refused eviction and releases the slot. Returns how long to wait before the next request, which grows
    /// with each refusal in a row.
    pub fn eviction_refused(&self, actor: &Key, message: &str, now: Timestamp) -> Duration {
        let mut inner = self.inner.lock();
        inner.leave(actor);
        let earlier = inner.refusals.get(actor).map_or(0, |it| it.in_a_row);
        let wait = REFUSAL_BACKOFF.after(earlier);
        let refusals = Refusals {
            in_a_row: earlier.saturating_add(1),
            last: RefusedEviction {
                message: message.to_owned(),
                retry_at: now.checked_add(wait).unwrap_or(now),
            },
        };
        inner.refusals.insert(actor.clone(), refusals);
        wait
    }

    /// The last eviction, if it was refused and is not to be requested again yet.
    pub fn refused_eviction(&self, actor: &Key, now: Timestamp) -> Option<RefusedEviction> {
        let inner = self.inner.lock();
        let last = &inner.refusals.get(actor)?.last;
        last.time_left(now).map(|_| last.clone())
    }

    /// Records a successful eviction.
    pub fn eviction_accepted(&self, actor: &Key) {
        self.inner.lock().refusals.remove(actor);
    }

    /// Drops the actor's state once no pod of its target has to be replaced.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        inner.leave(actor);
        inner.refusals.remove(actor);
    }
}

impl Inner {
    /// The actors whose slot has not expired.
    fn holders(&self, now: Timestamp) -> HashSet<Key> {
        let slots = self.by_actor.iter();
        let held = slots.filter(|(_, until)| is_held(**until, now));
        held.map(|(key, _)| key.clone()).collect()
    }

    /// Releases the actor's slot, and its place in the queue for one.
    fn leave(&mut self, actor: &Key) {
        self.by_actor.remove(actor);
        self.waiting.remove(actor);
    }
}

/// Whether a slot that expires at `until` is held (SAFE-43).
fn is_held(until: Timestamp, now: Timestamp) -> bool {
    time_left(until, MAX_SLOT_TIME, now).is_some()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::RolloutSlots;
    use crate::record::Key;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// ROLL-2 (e), SAFE-15
    #[test]
    fn slot_expires_and_is_released_when_an_eviction_is_rejected() {
        let slots = RolloutSlots::new(1);
        let a = Key::new("ns", "a");
        let b = Key::new("ns", "b");
        let available = |now| [&a, &b].map(|actor| slots.can_acquire(actor, at(now)));
        assert_eq!(available(0), [true, true]);
        slots.acquire(&a, at(10));
        assert_eq!(available(9), [true, false]);
        assert_eq!(available(10), [true, true], "the slot has expired");
        slots.acquire(&a, at(30));
        assert_eq!(available(20), [true, false]);
        slots.eviction_refused(&a, "budget", at(20));
        assert_eq!(available(20), [true, true], "released");
        slots.acquire(&a, at(30));
        slots.forget(&a);
        assert_eq!(available(20), [true, true]);
    }

    /// SAFE-43
    #[test]
    fn clock_that_was_ahead_neither_keeps_a_slot_nor_puts_an_eviction_off() {
        let slots = RolloutSlots::new(1);
        let [a, b] = ["a", "b"].map(|name| Key::new("ns", name));
        slots.acquire(&a, at(10_000));
        for (now, is_held) in [(6_099, false), (6_100, true), (9_999, true)] {
            assert_eq!(slots.holds(&a, at(now)), is_held, "{now}");
            assert_eq!(slots.can_acquire(&b, at(now)), !is_held, "{now}");
        }
        slots.eviction_refused(&a, "budget", at(10_000));
        let is_refused = |now| slots.refused_eviction(&a, at(now)).is_some();
        assert_eq!([10_009, 9_410, 9_409].map(is_refused), [true, true, false]);
    }

    /// ROLL-4 (c)
    #[test]
    fn refused_eviction_is_requested_again_after_longer_and_longer_delays() {
        let slots = RolloutSlots::new(1);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let refuse = |now| slots.eviction_refused(&a, "budget", at(now)).as_secs();
        let message = |actor, now| slots.refused_eviction(actor, at(now)).map(|it| it.message);
        assert_eq!(message(&a, 0), None);
        assert_eq!(refuse(0), 10);
        assert_eq!(message(&a, 9).as_deref(), Some("budget"));
        assert_eq!(message(&b, 9), None);
        assert_eq!(message(&a, 10), None, "due again");
        assert_eq!(
            [10, 30, 70, 150, 310, 610].map(refuse),
            [20, 40, 80, 160, 300, 300]
        );
        for ends in [RolloutSlots::eviction_accepted, RolloutSlots::forget] {
            ends(&slots, &a);
            assert_eq!(message(&a, 610), None);
            assert_eq!(refuse(610), 10, "counted anew");
        }
    }

    /// ROLL-2 (e), SAFE-16
    #[test]
    fn one_namespace_cannot_hold_all_slots() {
        let slots = RolloutSlots::new(3);
        let [a, b, c] = ["a", "b", "c"].map(|name| Key::new("ns", name));
        slots.acquire(&a, at(10));
        assert!(slots.can_acquire(&b, at(0)));
        slots.acquire(&b, at(10));
        assert!(!slots.can_acquire(&c, at(0)));
        assert!(slots.can_acquire(&b, at(0)), "keeps the slot that it holds");
        let other = Key::new("other", "c");
        assert!(slots.can_acquire(&other, at(0)));
        slots.acquire(&other, at(10));
        assert!(!slots.can_acquire(&Key::new("third", "d"), at(0)));
    }

    /// SAFE-15, SAFE-16
    #[test]
    fn waiting_actors_are_dequeued_in_order_as_slots_become_free() {
        let slots = RolloutSlots::new(3);
        let [holder, next_holder, first, second, third] =
            ["a", "b", "c", "d", "e"].map(|name| Key::new("ns", name));
        let other = Key::new("other", "f");
        let dequeued = |now| slots.dequeue_waiting(at(now));
        slots.acquire(&holder, at(10));
        slots.acquire(&next_holder, at(20));
        for waiting in [&first, &second, &first, &third, &other] {
            slots.wait(waiting);
        }
        assert_eq!(
            dequeued(0),
            [other],
            "the namespace of the others has no slot left"
        );
        assert_eq!(dequeued(0), []);
        assert_eq!(dequeued(10), [&first].map(Key::clone), "a slot has expired");
        slots.wait(&first);
        slots.release(&next_holder);
        assert_eq!(
            dequeued(10),
            [second, third],
            "the first waits again, behind them"
        );
        assert_eq!(dequeued(10), [&first].map(Key::clone));

        slots.acquire(&holder, at(30));
        slots.acquire(&next_holder, at(30));
        slots.wait(&first);
        slots.forget(&holder);
        slots.forget(&first);
        assert_eq!(dequeued(10), [], "it needs no slot any more");
        slots.wait(&next_holder);
        assert_eq!(
            dequeued(10),
            [next_holder],
            "an actor that waits holds no slot"
        );
    }
}
