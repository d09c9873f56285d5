//! Reference counts of the watches that bindings need, so that a change of one binding does not look at all others
//! (OPS-32).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::kinds::Kind;
use crate::cluster::watch_scope::WatchScope;

/// Above this many namespaces a single cluster-wide watch is cheaper (BIND-61).
const MAX_NAMESPACES: usize = 50;

/// A watch that bindings need.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededWatch {
    pub subject: WatchSubject,
    pub scope: WatchScope,
}

/// The objects that a watch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchSubject {
    /// Pods without an actor label.
    Pods,
    /// Admission constraints on pods, and Events about failed pod creation (SAFE-4).
    Constraints,
    /// Objects of a kind that is bound, or that affects how a target resolves.
    Objects(Kind),
}

/// How many bindings of each namespace need each watch.
#[derive(Debug, Default)]
pub struct WatchCounts(BTreeMap<WatchSubject, BTreeMap<Arc<str>, usize>>);

impl WatchCounts {
    /// Counts a binding that needs these watched in its namespace.
    pub fn add(&mut self, subjects: BTreeSet<WatchSubject>, namespace: &Arc<str>) {
        for subject in subjects {
            let namespaces = self.0.entry(subject).or_default();
            *namespaces.entry(Arc::clone(namespace)).or_default() += 1;
        }
    }

    /// Reverts [`Self::add`] with the same arguments.
    pub fn remove(&mut self, subjects: BTreeSet<WatchSubject>, namespace: &Arc<str>) {
        for subject in subjects {
            let Some(namespaces) = self.0.get_mut(&subject) else {
                continue;
            };
            if let Some(count) = namespaces.get_mut(namespace) {
                *count -= 1;
                if *count == 0 {
                    namespaces.remove(namespace);
                }
            }
            if namespaces.is_empty() {
                self.0.remove(&subject);
            }
        }
    }

    pub fn needed(&self) -> BTreeSet<NeededWatch> {
        let watches = self.0.iter().flat_map(|(subject, namespaces)| {
            let scopes: Vec<WatchScope> = if namespaces.len() > MAX_NAMESPACES {
                vec![WatchScope::Cluster]
            } else {
                namespaces
                    .keys()
                    .cloned()
                    .map(WatchScope::Namespace)
                    .collect()
            };
            scopes.into_iter().map(|scope| NeededWatch {
                subject: subject.clone(),
                scope,
            })
        });
        watches.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(counts: &WatchCounts) -> Vec<(WatchSubject, Option<String>)> {
        let all = counts.needed().into_iter();
        all.map(|it| (it.subject, it.scope.namespace().map(ToString::to_string)))
            .collect()
    }

    /// BIND-60, BIND-61, OPS-32
    #[test]
    fn watch_is_needed_while_at_least_one_binding_needs_it() {
        let mut counts = WatchCounts::default();
        let pods = || BTreeSet::from([WatchSubject::Pods]);
        let both = || BTreeSet::from([WatchSubject::Pods, WatchSubject::Constraints]);
        let namespace = |number: usize| Arc::from(format!("ns{number}"));
        counts.add(pods(), &namespace(0));
        counts.add(both(), &namespace(0));
        counts.remove(both(), &namespace(0));
        let of_first = (WatchSubject::Pods, Some("ns0".to_owned()));
        assert_eq!(needed(&counts), [of_first]);
        for number in 1..=MAX_NAMESPACES {
            counts.add(pods(), &namespace(number));
        }
        assert_eq!(needed(&counts), [(WatchSubject::Pods, None)]);
        counts.remove(pods(), &namespace(7));
        assert_eq!(needed(&counts).len(), MAX_NAMESPACES);
        for number in (0..=MAX_NAMESPACES).filter(|it| *it != 7) {
            counts.remove(pods(), &namespace(number));
        }
        assert_eq!(needed(&counts), []);
    }
}
