//! The actors that use a name at a broker, in order of precedence.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::{Grip, Use};
use crate::key::Key;

/// Creation time and UID of an actor. Of two actors created in the same second, the one with the smaller UID is older.
pub type Age = Arc<(Timestamp, Box<str>)>;

/// Precedence of a user. The smallest rank owns the name: the stronger claim first, then the older actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// How strong the actor's claim is.
    pub grip: Grip,
    /// Age of the actor.
    pub age: Age,
}

/// The users of one name. Actors that merely share it as their dead letter queue are kept separately: there may be
/// thousands of them, and they do not conflict with each other.
#[derive(Debug, Default)]
pub struct Users {
    exclusive: BTreeSet<(Rank, Key)>,
    sharing: BTreeSet<(Rank, Key)>,
}

impl Users {
    /// Adds an actor with its use of the name.
    pub fn insert(&mut self, use_: Use, rank: Rank, key: Key) {
        self.group(use_).insert((rank, key));
    }

    /// Removes what [`Self::insert`] added for the same arguments.
    pub fn remove(&mut self, use_: Use, rank: Rank, key: Key) {
        self.group(use_).remove(&(rank, key));
    }

    /// Whether no actor uses the name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exclusive.is_empty() && self.sharing.is_empty()
    }

    /// All other actors whose use of the name conflicts with this use by `key`.
    pub fn rivals<'a>(&'a self, key: &'a Key, use_: Use) -> impl Iterator<Item = &'a Key> {
        self.groups(use_)
            .flat_map(|group| group.iter().map(|(_, user)| user))
            .filter(move |user| *user != key)
    }

    /// The rival with the highest precedence.
    #[must_use]
    pub fn first_rival<'a>(&'a self, key: &Key, use_: Use) -> Option<(&'a Rank, &'a Key)> {
        self.groups(use_)
            .filter_map(|group| group.iter().find(|(_, user)| user != key))
            .min()
            .map(|(rank, user)| (rank, user))
    }

    fn group(&mut self, use_: Use) -> &mut BTreeSet<(Rank, Key)> {
        if use_.is_shared_with(Use::DeadLetters) {
            &mut self.sharing
        } else {
            &mut self.exclusive
        }
    }

    /// The groups whose members conflict with this use.
    fn groups(&self, use_: Use) -> impl Iterator<Item = &BTreeSet<(Rank, Key)>> {
        let sharing = Some(&self.sharing).filter(|_| !use_.is_shared_with(Use::DeadLetters));
        [&self.exclusive].into_iter().chain(sharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(grip: Grip, second: i64) -> Rank {
        let made = Timestamp::from_second(second).unwrap();
        Rank {
            grip,
            age: Arc::new((made, "uid".into())),
        }
    }

    /// QUE-3, OPS-23
    #[test]
    fn sharing_a_dead_letter_queue_conflicts_only_with_using_its_name_for_a_queue() {
        let mut users = Users::default();
        let key = |name: &str| Key::new("ns", name);
        for (name, second) in [("a", 3), ("b", 1), ("c", 2)] {
            users.insert(Use::DeadLetters, rank(Grip::Wants, second), key(name));
        }
        assert_eq!(users.first_rival(&key("a"), Use::DeadLetters), None);
        assert_eq!(users.rivals(&key("a"), Use::DeadLetters).count(), 0);

        users.insert(Use::Queue, rank(Grip::Wants, 9), key("d"));
        let first = |name: &str, use_| {
            let found = users.first_rival(&key(name), use_);
            found.map(|(_, user)| user.name.to_string())
        };
        assert_eq!(first("a", Use::DeadLetters).as_deref(), Some("d"));
        assert_eq!(first("d", Use::Queue).as_deref(), Some("b"), "the oldest");
        assert_eq!(first("new", Use::Retired).as_deref(), Some("b"));
        assert_eq!(users.rivals(&key("d"), Use::Queue).count(), 3);
        assert_eq!(users.rivals(&key("b"), Use::DeadLetters).count(), 1);

        users.insert(Use::Retired, rank(Grip::Left, 10), key("e"));
        let found = users.first_rival(&key("d"), Use::Queue);
        assert_eq!(
            found.map(|(rank, user)| (rank.grip, &*user.name)),
            Some((Grip::Left, "e")),
            "grip goes before age"
        );

        users.remove(Use::Retired, rank(Grip::Left, 10), key("e"));
        users.remove(Use::Queue, rank(Grip::Wants, 9), key("d"));
        assert_eq!(users.rivals(&key("b"), Use::DeadLetters).count(), 0);
        for (name, second) in [("a", 3), ("b", 1), ("c", 2)] {
            assert!(!users.is_empty());
            users.remove(Use::DeadLetters, rank(Grip::Wants, second), key(name));
        }
        assert!(users.is_empty());
    }
}
