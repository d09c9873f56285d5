//! The objects, their versions and every change since the beginning.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::managed::{self, Writer, without_fields};
use super::resources::{self, Resource};
use super::status::Failure;
use crate::clock;

/// An object's place.
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

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it brought.
    pub version: u64,
    /// The object's place.
    pub id: Id,
    /// The object before, if it existed.
    pub before: Option<Arc<Value>>,
    /// The object afterwards; of a deleted one, its last state with the version of the deletion.
    pub after: Arc<Value>,
    /// Whether it was deleted.
    pub deleted: bool,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct Deletion {
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must have this version.
    pub version: Option<String>,
    /// Whether dependents are kept, without their reference to it.
    pub orphan: bool,
}

/// What a write produced.
pub type Written = Result<Arc<Value>, Failure>;

/// All objects.
#[derive(Default)]
pub struct Store {
    objects: BTreeMap<Id, Arc<Value>>,
    version: u64,
    /// Versions up to this one can no longer be watched from.
    compacted: u64,
    uids: u64,
    changes: Vec<Change>,
    wakers: Vec<Arc<Notify>>,
    /// During a dry run nobody is notified.
    is_silent: bool,
}

/// A state of a [`Store`].
pub struct Snapshot {
    objects: BTreeMap<Id, Arc<Value>>,
    version: u64,
    changes: usize,
}

impl Store {
    /// An object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<Arc<Value>> {
        self.objects.get(id).cloned()
    }

    /// All objects of a resource, in the order of their names.
    pub fn all(&self, resource: &'static Resource) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        let objects = self.objects.iter();
        objects.filter(move |(id, _)| id.resource == resource)
    }

    /// All objects.
    pub fn everything(&self) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        self.objects.iter()
    }

    /// The current version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.max(1)
    }

    /// The changes after a version.
    ///
    /// # Errors
    /// If that version is too old.
    pub fn changes_after(&self, version: u64) -> Result<&[Change], Failure> {
        if version < self.compacted {
            return Err(Failure::expired());
        }
        let first = self
            .changes
            .partition_point(|change| change.version <= version);
        Ok(&self.changes[first..])
    }

    /// The objects as they are, for [`Store::restore`].
    #[must_use]
    pub fn snapshot(&mut self) -> Snapshot {
        self.is_silent = true;
        Snapshot {
            objects: self.objects.clone(),
            version: self.version,
            changes: self.changes.len(),
        }
    }

    /// Makes everything since the snapshot undone. Uids are not used again.
    pub fn restore(&mut self, snapshot: Snapshot) {
        self.objects = snapshot.objects;
        self.version = snapshot.version;
        self.changes.truncate(snapshot.changes);
        self.is_silent = false;
    }

    /// Forgets what changed until now, so that watches must list again.
    pub fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// Is notified about every change.
    pub fn subscribe(&mut self) -> Arc<Notify> {
        let waker = Arc::new(Notify::new());
        self.wakers.retain(|waker| Arc::strong_count(waker) > 1);
        self.wakers.push(Arc::clone(&waker));
        waker
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If one exists.
    pub fn create(&mut self, id: &Id, mut object: Value, writer: &Writer) -> Written {
        if self.objects.contains_key(id) {
            return Err(Failure::already_exists(id));
        }
        managed::normalize(&mut object);
        prepare(id, &mut object);
        managed::record_update(&json!({}), &mut object, writer);
        Ok(self.insert(id, object))
    }

    fn insert(&mut self, id: &Id, mut object: Value) -> Arc<Value> {
        self.uids += 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = format!("{:08x}-0000-4000-8000-000000000000", self.uids).into();
        metadata["creationTimestamp"] = clock::now_text().into();
        if id.resource.generation {
            metadata["generation"] = 1.into();
        }
        self.commit(id, None, object)
    }

    /// Applies a configuration to an object, or creates it.
    ///
    /// # Errors
    /// If it conflicts with other managers or with the version or uid in the configuration.
    pub fn apply(&mut self, id: &Id, mut config: Value, writer: &Writer, force: bool) -> Written {
        managed::normalize(&mut config);
        let live = self.get(id);
        let Some(live) = live else {
            if config["metadata"]["uid"].is_string() {
                let why = "uid mismatch: the provided object specified a uid, and no existing object was found";
                return Err(Failure::conflict(id, why));
            }
            if writer.status {
                return Err(Failure::not_found(id));
            }
            prepare(id, &mut config);
            let empty =
                json!({"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}});
            let object = managed::apply(&empty, &config, writer, force);
            let mut object = object.map_err(|_| Failure::conflict(id, "conflict"))?;
            let metadata = &mut object["metadata"];
            metadata["name"] = id.name.clone().into();
            if id.resource.namespaced {
                metadata["namespace"] = id.namespace.clone().into();
            }
            return Ok(self.insert(id, object));
        };
        check_preconditions(id, &live, &config)?;
        restrict(id, writer, &mut config);
        for field in ["resourceVersion", "uid"] {
            if let Some(metadata) = config["metadata"].as_object_mut() {
                metadata.remove(field);
            }
        }
        let mut object = managed::apply(&live, &config, writer, force).map_err(|conflicts| {
            let first = conflicts.0.first();
            let (manager, field) = first.cloned().unwrap_or_default();
            let why = format!("Apply failed with 1 conflict: conflict with {manager:?}: {field}");
            Failure::conflict(id, &why)
        })?;
        managed::normalize(&mut object);
        Ok(self.commit(id, Some(&live), object))
    }

    /// Replaces an object by a changed one.
    ///
    /// # Errors
    /// If it does not exist, or has another version or uid than the changed one.
    pub fn update(&mut self, id: &Id, mut changed: Value, writer: &Writer) -> Written {
        let live = self.get(id).ok_or_else(|| Failure::not_found(id))?;
        check_preconditions(id, &live, &changed)?;
        managed::normalize(&mut changed);
        let mut object = if writer.status {
            let mut object = (*live).clone();
            object["status"] = changed["status"].take();
            object
        } else {
            if id.resource.status {
                changed["status"] = live["status"].clone();
            }
            keep_system_fields(&live, &mut changed);
            changed
        };
        managed::normalize(&mut object);
        if object == *live {
            return Ok(live);
        }
        managed::record_update(&live, &mut object, writer);
        Ok(self.commit(id, Some(&live), object))
    }

    /// Deletes an object, at once or when its last finalizer is gone.
    ///
    /// # Errors
    /// If it does not exist, or is not the one meant.
    pub fn delete(&mut self, id: &Id, deletion: &Deletion) -> Written {
        let live = self.get(id).ok_or_else(|| Failure::not_found(id))?;
        let metadata = &live["metadata"];
        let differs = |wanted: &Option<String>, field: &str| {
            wanted
                .as_deref()
                .is_some_and(|wanted| metadata[field] != wanted)
        };
        if differs(&deletion.uid, "uid") {
            return Err(Failure::conflict(
                id,
                "the UID in the precondition does not match the UID in record",
            ));
        }
        if differs(&deletion.version, "resourceVersion") {
            let why = "the ResourceVersion in the precondition does not match the ResourceVersion in record";
            return Err(Failure::conflict(id, why));
        }
        if deletion.orphan {
            self.orphan_dependents(&live);
        }
        let mut object = (*live).clone();
        let finalized = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        // A pod stays until its kubelet has ended it.
        if finalized && id.resource.kind != "Pod" {
            self.remove(id, &live);
            return Ok(live);
        }
        if metadata["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = clock::now_text().into();
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            if id.resource.generation {
                bump_generation(&mut object);
            }
        }
        Ok(self.commit(id, Some(&live), object))
    }

    fn orphan_dependents(&mut self, owner: &Value) {
        let uid = &owner["metadata"]["uid"];
        let is_dependent = |object: &Value| owners(object).any(|it| it["uid"] == *uid);
        let dependents = self
            .objects
            .iter()
            .filter(|(_, object)| is_dependent(object));
        let dependents: Vec<_> = dependents
            .map(|(id, object)| (id.clone(), Arc::clone(object)))
            .collect();
        for (id, live) in dependents {
            let mut object = (*live).clone();
            let rest: Vec<Value> = owners(&live)
                .filter(|it| it["uid"] != *uid)
                .cloned()
                .collect();
            object["metadata"]["ownerReferences"] = rest.into();
            let writer = Writer {
                manager: "kube-controller-manager".to_owned(),
                status: false,
            };
            managed::record_update(&live, &mut object, &writer);
            self.commit(&id, Some(&live), object);
        }
    }

    /// Removes an object whatever its finalizers say, as the kubelet removes a pod that has ended.
    pub fn remove(&mut self, id: &Id, live: &Arc<Value>) {
        self.objects.remove(id);
        let mut last = (**live).clone();
        self.record(id, Some(live), &mut last, true);
    }

    /// Deletes objects all of whose owners are gone. Returns whether there were any.
    pub fn collect_garbage(&mut self) -> bool {
        let uids: Vec<&Value> = self
            .objects
            .values()
            .map(|it| &it["metadata"]["uid"])
            .collect();
        let is_garbage = |object: &Value| {
            let mut all = owners(object).peekable();
            all.peek().is_some()
                && object["metadata"]["deletionTimestamp"].is_null()
                && all.all(|owner| !uids.contains(&&owner["uid"]))
        };
        let garbage = self.objects.iter().find(|(_, object)| is_garbage(object));
        let Some(id) = garbage.map(|(id, _)| id.clone()) else {
            return false;
        };
        let _ = self.delete(&id, &Deletion::default());
        true
    }

    fn commit(&mut self, id: &Id, live: Option<&Arc<Value>>, mut object: Value) -> Arc<Value> {
        if let Some(live) = live {
            if without_fields(live) == without_fields(&object)
                && live["metadata"]["managedFields"] == object["metadata"]["managedFields"]
            {
                return Arc::clone(live);
            }
            if id.resource.generation && live["spec"] != object["spec"] {
                bump_generation(&mut object);
            }
            let metadata = &object["metadata"];
            let is_finalized = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
            if metadata["deletionTimestamp"].is_string()
                && is_finalized
                && id.resource.kind != "Pod"
            {
                self.objects.remove(id);
                return self.record(id, Some(live), &mut object, true);
            }
        }
        let after = self.record(id, live, &mut object, false);
        self.objects.insert(id.clone(), Arc::clone(&after));
        after
    }

    fn record(
        &mut self,
        id: &Id,
        before: Option<&Arc<Value>>,
        object: &mut Value,
        deleted: bool,
    ) -> Arc<Value> {
        self.version = self.version.max(1) + 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let after = Arc::new(object.take());
        self.changes.push(Change {
            version: self.version,
            id: id.clone(),
            before: before.cloned(),
            after: Arc::clone(&after),
            deleted,
        });
        // Nobody watches leases, and they change all the time.
        if id.resource != &resources::LEASES && !self.is_silent {
            self.wakers.iter().for_each(|waker| waker.notify_one());
        }
        after
    }
}

/// The owner references of an object.
pub fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten()
}

/// Fills in what the server itself writes into a new object.
fn prepare(id: &Id, object: &mut Value) {
    object["apiVersion"] = id.resource.api_version().into();
    object["kind"] = id.resource.kind.into();
    let metadata = &mut object["metadata"];
    metadata["name"] = id.name.clone().into();
    if id.resource.namespaced {
        metadata["namespace"] = id.namespace.clone().into();
    }
    if let Some(metadata) = metadata.as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
        ] {
            metadata.remove(field);
        }
    }
    if id.resource.status
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
}

/// What an apply to the object, or to its status, does not change.
fn restrict(id: &Id, writer: &Writer, config: &mut Value) {
    if writer.status {
        let metadata = json!({"name": id.name, "namespace": id.namespace});
        *config = json!({
            "apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": metadata, "status": config["status"],
        });
    } else if id.resource.status
        && let Some(config) = config.as_object_mut()
    {
        config.remove("status");
    }
}

fn keep_system_fields(live: &Value, changed: &mut Value) {
    for field in [
        "uid",
        "creationTimestamp",
        "generation",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        changed["metadata"][field] = live["metadata"][field].clone();
    }
}

fn check_preconditions(id: &Id, live: &Value, wanted: &Value) -> Result<(), Failure> {
    let (live, wanted) = (&live["metadata"], &wanted["metadata"]);
    let differs = |field: &str| wanted[field].is_string() && wanted[field] != live[field];
    if differs("uid") {
        return Err(Failure::conflict(
            id,
            "Precondition failed: UID in precondition does not match UID in object meta",
        ));
    }
    if differs("resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Failure::conflict(id, why));
    }
    Ok(())
}

fn bump_generation(object: &mut Value) {
    let next = object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default()
        + 1;
    object["metadata"]["generation"] = next.into();
}
