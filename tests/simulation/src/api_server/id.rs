//! The identity of an object.

use super::resources::Resource;

/// An object's resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Its resource.
    pub resource: &'static Resource,
    /// Its namespace; empty if cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Id {
    /// The object of a resource with this namespace and name.
    #[must_use]
    pub fn new(resource: &'static Resource, namespace: &str, name: &str) -> Self {
        Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.resource.kind, self.namespace, self.name)
    }
}
