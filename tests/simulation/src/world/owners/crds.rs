//! The CRDs of owners' kinds.

use serde_json::json;

use super::super::writer;
use super::OwnerKind;
use crate::api_server::id::Id;
use crate::api_server::resources;
use crate::api_server::store::Store;

/// Installs an owner's CRD.
pub fn install(store: &mut Store, owner: OwnerKind) {
    let Some(resource) = owner.resource() else {
        return;
    };
    let name = resource.qualified();
    store.install_crd(resource);
    let id = Id::new(&resources::CRDS, "", &name);
    if let Some(live) = store.get(&id) {
        let mut crd = live.to_value();
        let version = json!({"name": resource.version, "served": true, "storage": true});
        crd["spec"] = json!({"group": resource.group, "versions": [version]});
        let _ = store.update(&id, crd, &writer("helm"));
    }
}
