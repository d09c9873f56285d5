//! The actor that a preview is of, and the cluster that it would be applied to.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::installation::Installation;

/// An actor as it would be stored.
pub struct Online<'a> {
    pub cluster: &'a Cluster,
    pub installation: &'a Installation,
    pub namespace: &'a str,
    pub name: &'a str,
    /// As it is stored now.
    pub existing: Option<&'a Value>,
    pub stored: &'a Value,
}
