//! The part of the cluster that a watch covers.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::record::Key;

/// What a watch of namespaced objects covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchScope {
    /// All namespaces.
    Cluster,
    Namespace(Arc<str>),
}

impl WatchScope {
    /// The namespace, unless the scope is the whole cluster.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Cluster => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }

    /// Whether objects of this namespace are watched.
    pub fn covers(&self, namespace: &str) -> bool {
        self.namespace().is_none_or(|own| **own == *namespace)
    }
}

/// Whether one of `scopes` covers the namespace of `key`.
pub fn covers(scopes: &BTreeSet<WatchScope>, key: &Key) -> bool {
    scopes.contains(&WatchScope::Cluster)
        || scopes.contains(&WatchScope::Namespace(Arc::clone(&key.namespace)))
}
