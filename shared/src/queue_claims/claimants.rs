//! The actors that use a name at a broker, in order of precedence.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{ClaimKind, ClaimPriority};
use crate::key::Key;

#[cfg(test)]
use self::tests::count_visit;

/// Creation time and UID of an actor. Of two actors created in the same second, the one with the smaller UID is older.
pub type Age = Arc<(Timestamp, Box<str>)>;

/// Precedence of a claimant. The smallest rank holds the name: the stronger claim first, then the older actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// How strong the actor's claim is.
    pub priority: ClaimPriority,
    /// Age of the actor.
    pub age: Age,
}

/// The claimants of one name. Actors that merely share it as their dead letter queue are kept separately: there may be
/// thousands of them, and they do not exclude each other.
#[derive(Debug, Default)]
pub struct Claimants {
    exclusive: BTreeSet<(Rank, Key)>,
    sharing: BTreeSet<(Rank, Key)>,
}

impl Claimants {
    /// Adds an actor with its use of the name.
    pub fn insert(&mut self, kind: ClaimKind, rank: Rank, key: Key) {
        self.group(kind).insert((rank, key));
    }

    /// Removes what [`Self::insert`] added for the same arguments.
    pub fn remove(&mut self, kind: ClaimKind, rank: Rank, key: Key) {
        self.group(kind).remove(&(rank, key));
    }

    /// Whether no actor uses the name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exclusive.is_empty() && self.sharing.is_empty()
    }

    /// All other actors whose use of the name excludes this use by `key`.
    pub fn competing_claimants<'a>(
        &'a self,
        key: &'a Key,
        kind: ClaimKind,
    ) -> impl Iterator<Item = &'a Key> {
        self.groups(kind)
            .flat_map(|group| members(group).map(|(_, claimant)| claimant))
            .filter(move |claimant| *claimant != key)
    }

    /// The competing claimant with the highest precedence, unless its broker refuses it the name.
    #[must_use]
    pub fn first_competing_claimant<'a>(
        &'a self,
        key: &Key,
        kind: ClaimKind,
    ) -> Option<(&'a Rank, &'a Key)> {
        self.groups(kind)
            .filter_map(|group| members(group).find(|(_, claimant)| claimant != key))
            .min()
            .filter(|(rank, _)| rank.priority != ClaimPriority::Refused)
            .map(|(rank, claimant)| (rank, claimant))
    }

    fn group(&mut self, kind: ClaimKind) -> &mut BTreeSet<(Rank, Key)> {
        if kind.can_share_with(ClaimKind::DeadLetters) {
            &mut self.sharing
        } else {
            &mut self.exclusive
        }
    }

    /// The groups whose members compete with this use.
    fn groups(&self, kind: ClaimKind) -> impl Iterator<Item = &BTreeSet<(Rank, Key)>> {
        let sharing = Some(&self.sharing).filter(|_| !kind.can_share_with(ClaimKind::DeadLetters));
        [&self.exclusive].into_iter().chain(sharing)
    }
}

/// The members of a group, by rank. Searches go through here, so that tests can count how many they visit.
fn members(group: &BTreeSet<(Rank, Key)>) -> impl Iterator<Item = &(Rank, Key)> {
    group.iter().inspect(|_| count_visit())
}

#[cfg(not(test))]
const fn count_visit() {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_visit() {
        VISITS.set(VISITS.get() + 1);
    }

    fn rank(priority: ClaimPriority, second: i64) -> Rank {
        let created = Timestamp::from_second(second).unwrap();
        Rank {
            priority,
            age: Arc::new((created, "uid".into())),
        }
    }

    /// QUE-3, OPS-23
    #[test]
    fn sharing_a_dead_letter_queue_conflicts_only_with_using_its_name_for_a_queue() {
        let mut claimants = Claimants::default();
        let key = |name: &str| Key::new("ns", name);
        for (name, second) in [("a", 3), ("b", 1), ("c", 2)] {
            claimants.insert(
                ClaimKind::DeadLetters,
                rank(ClaimPriority::Requested, second),
                key(name),
            );
        }
        assert_eq!(
            claimants.first_competing_claimant(&key("a"), ClaimKind::DeadLetters),
            None
        );
        assert_eq!(
            claimants
                .competing_claimants(&key("a"), ClaimKind::DeadLetters)
                .count(),
            0
        );

        claimants.insert(
            ClaimKind::Queue,
            rank(ClaimPriority::Requested, 9),
            key("d"),
        );
        let first = |name: &str, kind| {
            let found = claimants.first_competing_claimant(&key(name), kind);
            found.map(|(_, claimant)| claimant.name.to_string())
        };
        assert_eq!(first("a", ClaimKind::DeadLetters).as_deref(), Some("d"));
        assert_eq!(
            first("d", ClaimKind::Queue).as_deref(),
            Some("b"),
            "the oldest"
        );
        assert_eq!(first("new", ClaimKind::Retired).as_deref(), Some("b"));
        assert_eq!(
            claimants
                .competing_claimants(&key("d"), ClaimKind::Queue)
                .count(),
            3
        );
        assert_eq!(
            claimants
                .competing_claimants(&key("b"), ClaimKind::DeadLetters)
                .count(),
            1
        );

        claimants.insert(
            ClaimKind::Retired,
            rank(ClaimPriority::Retired, 10),
            key("e"),
        );
        let found = claimants.first_competing_claimant(&key("d"), ClaimKind::Queue);
        assert_eq!(
            found.map(|(rank, claimant)| (rank.priority, &*claimant.name)),
            Some((ClaimPriority::Retired, "e")),
            "priority precedes age"
        );

        claimants.remove(
            ClaimKind::Retired,
            rank(ClaimPriority::Retired, 10),
            key("e"),
        );
        claimants.remove(
            ClaimKind::Queue,
            rank(ClaimPriority::Requested, 9),
            key("d"),
        );
        assert_eq!(
            claimants
                .competing_claimants(&key("b"), ClaimKind::DeadLetters)
                .count(),
            0
        );
        for (name, second) in [("a", 3), ("b", 1), ("c", 2)] {
            assert!(!claimants.is_empty());
            claimants.remove(
                ClaimKind::DeadLetters,
                rank(ClaimPriority::Requested, second),
                key(name),
            );
        }
        assert!(claimants.is_empty());
    }

    /// QUE-35
    #[test]
    fn actor_whose_queue_is_marked_for_another_keeps_no_other_one_from_the_name() {
        let mut claimants = Claimants::default();
        let key = |name: &str| Key::new("ns", name);
        claimants.insert(ClaimKind::Queue, rank(ClaimPriority::Refused, 1), key("a"));
        let first = |claimants: &Claimants, name: &str| {
            let found = claimants.first_competing_claimant(&key(name), ClaimKind::Queue);
            found.map(|(_, claimant)| claimant.name.to_string())
        };
        assert_eq!(first(&claimants, "b"), None);
        let b = key("b");
        let told = claimants.competing_claimants(&b, ClaimKind::Queue);
        assert_eq!(told.count(), 1, "it is told of changes");
        claimants.insert(
            ClaimKind::Queue,
            rank(ClaimPriority::Requested, 2),
            key("b"),
        );
        assert_eq!(first(&claimants, "b"), None);
        assert_eq!(first(&claimants, "a").as_deref(), Some("b"));
        assert_eq!(first(&claimants, "new").as_deref(), Some("b"));
    }

    /// OPS-23: comparing each of 10,000 with all others would visit 100,000,000. `make bench` measures the time.
    #[test]
    fn actors_that_share_a_dead_letter_queue_are_not_compared_with_each_other() {
        let kind = ClaimKind::DeadLetters;
        let keys: Vec<_> = (0..10_000)
            .map(|number| Key::new("ns", &format!("a{number}")))
            .collect();
        let mut claimants = Claimants::default();
        let holder = Key::new("ns", "holder");
        claimants.insert(ClaimKind::Queue, rank(ClaimPriority::Requested, 1), holder);
        let previous = VISITS.get();
        for key in &keys {
            claimants.insert(kind, rank(ClaimPriority::Requested, 2), key.clone());
            assert_eq!(claimants.competing_claimants(key, kind).count(), 1);
            assert!(claimants.first_competing_claimant(key, kind).is_some());
        }
        let visits = VISITS.get() - previous;
        assert_eq!(visits, 2 * keys.len(), "the holder of the name, twice each");
    }
}
