//! `CustomResourceDefinition`s: which resources they make available, and how they are deleted.

use std::sync::Arc;

use serde_json::json;

use super::deletion::Deletion;
use super::deletion::finalizers;
use super::id::Id;
use super::managed::Writer;
use super::object::Object;
use super::resources::{self, Resource};
use super::store::Store;

/// The resources that are served only while their CRD exists.
static DEFINED: [&Resource; 5] = [
    &resources::INFERENCE_SERVICES,
    &resources::RAY_CLUSTERS,
    &resources::SCALED_OBJECTS,
    &resources::TRIGGER_AUTHENTICATIONS,
    &resources::WORKSPACES,
];

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The state in which a resource is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Fully served.
    Served,
    /// Its CRD is being deleted: no objects can be created.
    Terminating,
    /// Its CRD does not exist.
    Absent,
}

impl Store {
    /// The state in which a resource is served.
    #[must_use]
    pub fn serving(&self, resource: &'static Resource) -> Serving {
        if !DEFINED.contains(&resource) {
            return Serving::Served;
        }
        match self.get(&crd_of(resource)) {
            None => Serving::Absent,
            Some(crd) if is_deleting(&crd) => Serving::Terminating,
            Some(_) => Serving::Served,
        }
    }

    /// Installs the CRD of a resource, unless it exists or is not needed.
    pub fn install_crd(&mut self, resource: &'static Resource) {
        if !DEFINED.contains(&resource) {
            return;
        }
        let id = crd_of(resource);
        let metadata = json!({"finalizers": [FINALIZER]});
        let crd = json!({"metadata": metadata, "spec": {}});
        let Ok(created) = self.create(&id, crd, &writer("helm", false)) else {
            return;
        };
        let mut crd = created.to_value();
        crd["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        let _ = self.update(&id, crd, &writer("kube-apiserver", true));
    }

    /// Deletes the CRD of a resource; it remains until all objects are gone.
    pub fn delete_crd(&mut self, resource: &'static Resource) {
        let _ = self.delete(&crd_of(resource), &Deletion::default());
    }

    /// Deletes the objects of CRDs that are being deleted, and then the CRDs that have no objects left.
    pub fn finish_crds(&mut self) {
        for resource in DEFINED {
            let id = crd_of(resource);
            let Some(crd) = self.get(&id).filter(is_deleting) else {
                continue;
            };
            let objects = self
                .all(resource)
                .filter(|(_, object)| !is_deleting(object));
            let objects: Vec<Id> = objects.map(|(id, _)| id.clone()).collect();
            for object in objects {
                let _ = self.delete(&object, &Deletion::default());
            }
            if self.all(resource).next().is_none() && finalizers(&crd).next().is_some() {
                let mut crd = crd.to_value();
                crd["metadata"]["finalizers"] = json!([]);
                let _ = self.update(&id, crd, &writer("kube-apiserver", false));
            }
        }
    }
}

fn crd_of(resource: &Resource) -> Id {
    Id::new(&resources::CRDS, "", &resource.qualified())
}

fn is_deleting(object: &Arc<Object>) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn writer(manager: &str, status: bool) -> Writer {
    Writer {
        manager: manager.to_owned(),
        status,
    }
}
