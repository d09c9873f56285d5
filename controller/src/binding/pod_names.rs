//! Finds the pods that can belong to a target, and the targets of a pod, by names that both have: so that neither is
//! compared with all of the other in its namespace (OPS-32).

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use asya_shared::resolve::PodMatch;

/// Hash of a name: takes few bytes per pod, and a collision costs only one more comparison.
type NameHash = u64;

fn hash(name: &str) -> NameHash {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Items by their names.
#[derive(Debug)]
struct ByName<T>(HashMap<NameHash, BTreeSet<T>>);

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone + Ord> ByName<T> {
    fn insert<'n>(&mut self, names: impl IntoIterator<Item = &'n str>, item: &T) {
        for name in names {
            self.0.entry(hash(name)).or_default().insert(item.clone());
        }
    }

    fn remove<'n>(&mut self, names: impl IntoIterator<Item = &'n str>, item: &T) {
        for name in names {
            let name = hash(name);
            if let Some(items) = self.0.get_mut(&name) {
                items.remove(item);
                if items.is_empty() {
                    self.0.remove(&name);
                }
            }
        }
    }

    fn with<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> BTreeSet<&T> {
        let names = names.into_iter().map(hash);
        let items = names.filter_map(|name| self.0.get(&name)).flatten();
        items.inspect(|_| count_visit()).collect()
    }
}

/// Pods by the names under which targets look for them.
#[derive(Debug)]
pub struct PodsByName<T>(ByName<T>);

impl<T> Default for PodsByName<T> {
    fn default() -> Self {
        Self(ByName::default())
    }
}

impl<T: Clone + Ord> PodsByName<T> {
    /// Adds a pod under these names.
    pub fn insert(&mut self, names: Vec<&str>, pod: &T) {
        self.0.insert(names, pod);
    }

    /// Removes what was added with these names.
    pub fn remove(&mut self, names: Vec<&str>, pod: &T) {
        self.0.remove(names, pod);
    }

    /// The pods that a target can have; `None` if it can have any.
    pub fn candidates(&self, pods: &PodMatch) -> Option<BTreeSet<&T>> {
        Some(self.0.with(pods.lookup_names()?))
    }
}

/// Targets by the names under which they look for pods.
#[derive(Debug)]
pub struct TargetsByName<T> {
    by_name: ByName<T>,
    /// Targets that can have any pod.
    others: BTreeSet<T>,
}

impl<T> Default for TargetsByName<T> {
    fn default() -> Self {
        Self {
            by_name: ByName::default(),
            others: BTreeSet::new(),
        }
    }
}

impl<T: Clone + Ord> TargetsByName<T> {
    /// Adds a target with these pods.
    pub fn insert(&mut self, pods: &PodMatch, target: &T) {
        match pods.lookup_names() {
            Some(names) => self.by_name.insert(names, target),
            None => {
                self.others.insert(target.clone());
            }
        }
    }

    /// Removes what was added with these pods.
    pub fn remove(&mut self, pods: &PodMatch, target: &T) {
        match pods.lookup_names() {
            Some(names) => self.by_name.remove(names, target),
            None => {
                self.others.remove(target);
            }
        }
    }

    /// The targets to which a pod of these names can belong.
    pub fn candidates(&self, names: Vec<&str>) -> BTreeSet<&T> {
        let mut candidates = self.by_name.with(names);
        candidates.extend(self.others.iter().inspect(|_| count_visit()));
        candidates
    }
}

#[cfg(not(test))]
const fn count_visit() {}

#[cfg(test)]
use self::tests::count_visit;

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    thread_local! {
        static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_visit() {
        VISITS.set(VISITS.get() + 1);
    }

    /// How many pods and targets were candidates so far.
    pub(in crate::binding) fn visits() -> usize {
        VISITS.get()
    }
}
