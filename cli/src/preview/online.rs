//! The actor of a preview, and the cluster that it would be applied to.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::installation::Installation;

/// The actor as it would be stored.
pub struct Online<'a> {
    pub cluster: &'a Cluster,
    pub installation: &'a Installation,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The actor as it is stored now.
    pub existing: Option<&'a Value>,
    pub stored: &'a Value,
}
