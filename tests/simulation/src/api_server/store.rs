//! The objects, their versions, and every change since the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::deletion::{Deletion, finalizers, finalizers_for};
use super::id::Id;
use super::managed::{self, Writer, equal_without_fields};
use super::object::Object;
use super::resources::{self, Resource};
use super::schema::{self, Schema};
use super::status::Failure;
use super::strategy::{
    bump_generation, check_metadata, check_preconditions, check_version, fill_in,
    keep_system_fields, prepare, restrict,
};
use crate::clock;

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resulting version.
    pub version: u64,
    /// The object's resource, namespace and name.
    pub id: Id,
    /// The previous object, if it existed.
    pub before: Option<Arc<Object>>,
    /// The object after the change; if deleted, its last state with the version of the deletion.
    pub after: Arc<Object>,
    /// Whether the object was deleted.
    pub deleted: bool,
}

/// The result of a write.
pub type Written = Result<Arc<Object>, Failure>;

/// The objects of one resource.
type OfResource = Arc<BTreeMap<Id, Arc<Object>>>;

/// The objects at one point in time.
///
/// Processes keep the snapshots that they read, so a write copies what it changes: the objects of one resource.
#[derive(Clone, Default)]
pub struct Objects(Arc<BTreeMap<&'static Resource, OfResource>>);

impl Objects {
    /// An object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<&Arc<Object>> {
        self.0.get(id.resource)?.get(id)
    }

    /// All objects of a resource, sorted by name.
    pub fn all(&self, resource: &'static Resource) -> impl Iterator<Item = (&Id, &Arc<Object>)> {
        self.0.get(resource).into_iter().flat_map(|it| it.iter())
    }

    /// All objects.
    pub fn everything(&self) -> impl Iterator<Item = (&Id, &Arc<Object>)> {
        self.0.values().flat_map(|it| it.iter())
    }

    fn insert(&mut self, id: &Id, object: &Arc<Object>) {
        let of_resource = Arc::make_mut(&mut self.0).entry(id.resource).or_default();
        Arc::make_mut(of_resource).insert(id.clone(), Arc::clone(object));
    }

    fn remove(&mut self, id: &Id) {
        if let Some(of_resource) = Arc::make_mut(&mut self.0).get_mut(id.resource) {
            Arc::make_mut(of_resource).remove(id);
        }
    }
}

/// All objects, with their history.
#[derive(Default)]
pub struct Store {
    objects: Objects,
    version: u64,
    /// Watches cannot start at this version or an earlier one.
    compacted: u64,
    uids: u64,
    changes: Vec<Change>,
    /// Subscribers, with the resource that they follow; `None` is any.
    wakers: Vec<(Option<&'static Resource>, Arc<Notify>)>,
    /// During a dry run, subscribers are not notified.
    is_silent: bool,
}

/// A saved state of a [`Store`].
pub struct Snapshot {
    objects: Objects,
    version: u64,
    changes: usize,
}

impl Store {
    /// An object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<Arc<Object>> {
        self.objects.get(id).cloned()
    }

    /// All objects of a resource, sorted by name.
    pub fn all(&self, resource: &'static Resource) -> impl Iterator<Item = (&Id, &Arc<Object>)> {
        self.objects.all(resource)
    }

    /// All objects.
    pub fn everything(&self) -> impl Iterator<Item = (&Id, &Arc<Object>)> {
        self.objects.everything()
    }

    /// The current objects.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.objects
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

    /// The current objects, for [`Store::restore`].
    #[must_use]
    pub fn snapshot(&mut self) -> Snapshot {
        self.is_silent = true;
        Snapshot {
            objects: self.objects.clone(),
            version: self.version,
            changes: self.changes.len(),
        }
    }

    /// Reverts everything since the snapshot. Uids are not reused.
    pub fn restore(&mut self, snapshot: Snapshot) {
        self.objects = snapshot.objects;
        self.version = snapshot.version;
        self.changes.truncate(snapshot.changes);
        self.is_silent = false;
    }

    /// Discards the history so far, so that watches must list again.
    pub fn compact(&mut self) {
        self.compacted = self.version;
    }

    /// Subscribes to every change of a resource, or of any.
    pub fn subscribe(&mut self, resource: Option<&'static Resource>) -> Arc<Notify> {
        let waker = Arc::new(Notify::new());
        self.wakers
            .retain(|(_, waker)| Arc::strong_count(waker) > 1);
        self.wakers.push((resource, Arc::clone(&waker)));
        waker
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If one exists.
    pub fn create(&mut self, id: &Id, mut object: Value, writer: &Writer) -> Written {
        if self.objects.get(id).is_some() {
            return Err(Failure::already_exists(id));
        }
        managed::normalize(&mut object, schema::is_custom(id.resource));
        prepare(id, &mut object);
        fill_in(id, &mut object);
        let nothing = schema::nothing(id.resource);
        managed::record_update(&nothing, &mut object, (writer, Schema::of(id.resource)));
        Ok(self.insert(id, object))
    }

    fn insert(&mut self, id: &Id, mut object: Value) -> Arc<Object> {
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
    /// If it conflicts with other managers, or with the version or uid in the configuration.
    pub fn apply(&mut self, id: &Id, mut config: Value, writer: &Writer, force: bool) -> Written {
        managed::normalize(&mut config, schema::is_custom(id.resource));
        let live = self.get(id);
        let Some(live) = live else {
            if writer.status {
                return Err(Failure::not_found(id));
            }
            if config["metadata"]["uid"].is_string() {
                let why = "uid mismatch: the provided object specified a uid, and no existing object was found";
                return Err(Failure::conflict(id, why));
            }
            prepare(id, &mut config);
            let empty =
                json!({"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}});
            let schema = Schema::of(id.resource);
            let object = managed::apply(&empty, &config, (writer, schema), force);
            let mut object = object.map_err(|_| Failure::conflict(id, "conflict"))?;
            let metadata = &mut object["metadata"];
            metadata["name"] = id.name.clone().into();
            if id.resource.namespaced {
                metadata["namespace"] = id.namespace.clone().into();
            }
            fill_in(id, &mut object);
            return Ok(self.insert(id, object));
        };
        if writer.status
            && let Some(metadata) = config["metadata"].as_object_mut()
        {
            // The server ignores the uid here.
            metadata.remove("uid");
        }
        let wanted = config.clone();
        restrict(id, writer, &mut config);
        for field in ["resourceVersion", "uid"] {
            if let Some(metadata) = config["metadata"].as_object_mut() {
                metadata.remove(field);
            }
        }
        let mut object = managed::apply(&live, &config, (writer, Schema::of(id.resource)), force)
            .map_err(|conflicts| Failure::field_conflicts(&conflicts.0))?;
        check_version(id, &live, &wanted)?;
        // In a custom resource, what an apply empties remains as `null`.
        if !schema::is_custom(id.resource) {
            managed::normalize(&mut object, false);
        }
        fill_in(id, &mut object);
        check_metadata(&live, &object, &wanted)?;
        Ok(self.commit(id, Some(&live), object))
    }

    /// Replaces an object with a changed version.
    ///
    /// # Errors
    /// If it does not exist, or its version or uid differs from that in `changed`.
    pub fn update(&mut self, id: &Id, mut changed: Value, writer: &Writer) -> Written {
        let Some(live) = self.get(id) else {
            // The only kinds that an update creates.
            if ["Lease", "Event"].contains(&id.resource.kind) {
                check_preconditions(
                    id,
                    &json!({}),
                    &json!({"metadata": {"uid": changed["metadata"]["uid"]}}),
                )?;
                return self.create(id, changed, writer);
            }
            return Err(Failure::not_found(id));
        };
        check_preconditions(id, &live, &changed)?;
        let needs_version = schema::is_custom(id.resource) || id.resource.kind == "Lease";
        if needs_version && changed["metadata"]["resourceVersion"].is_null() {
            let why = "must be specified for an update";
            let cause = ("FieldValueInvalid", why, "metadata.resourceVersion");
            return Err(Failure::invalid_fields(&[cause]));
        }
        managed::normalize(&mut changed, schema::is_custom(id.resource));
        let mut object = if writer.status {
            let mut object = live.to_value();
            object["status"] = changed["status"].take();
            object
        } else {
            if id.resource.status {
                changed["status"] = live["status"].clone();
            }
            keep_system_fields(&live, &mut changed);
            fill_in(id, &mut changed);
            changed
        };
        managed::normalize(&mut object, schema::is_custom(id.resource));
        check_metadata(&live, &object, &object)?;
        if object == **live {
            return Ok(live);
        }
        let before = managed::normal(&live, schema::is_custom(id.resource));
        managed::record_update(&before, &mut object, (writer, Schema::of(id.resource)));
        Ok(self.commit(id, Some(&live), object))
    }

    /// Deletes an object: at once, or when its last finalizer is removed.
    ///
    /// # Errors
    /// If it does not exist, or a precondition fails.
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
        let mut object = live.to_value();
        managed::normalize(&mut object, schema::is_custom(id.resource));
        let rest = finalizers_for(&live, deletion);
        let finalized = rest.is_empty();
        if !finalized || finalizers(&live).next().is_some() {
            object["metadata"]["finalizers"] = rest.into();
        }
        // A pod remains until its kubelet has stopped it.
        if finalized && id.resource.kind != "Pod" {
            return Ok(self.remove(id, &live));
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

    /// Removes an object regardless of its finalizers, as the kubelet removes a terminated pod.
    pub fn remove(&mut self, id: &Id, live: &Arc<Object>) -> Arc<Object> {
        self.objects.remove(id);
        let mut last = live.to_value();
        self.record(id, Some(live), &mut last, true)
    }

    fn commit(&mut self, id: &Id, live: Option<&Arc<Object>>, mut object: Value) -> Arc<Object> {
        if let Some(live) = live {
            if equal_without_fields(live, &object)
                && live["metadata"]["managedFields"] == object["metadata"]["managedFields"]
            {
                return Arc::clone(live);
            }
            let is_deployment = id.resource.kind == "Deployment";
            // A Workspace has no `spec`.
            let counts = ["spec", "resource", "inference"];
            let is_counted = counts.iter().any(|field| live[field] != object[field])
                || is_deployment
                    && live["metadata"]["annotations"] != object["metadata"]["annotations"];
            if id.resource.generation && is_counted {
                bump_generation(&mut object);
            }
            let metadata = &object["metadata"];
            let is_finalized = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
            if metadata["deletionTimestamp"].is_string()
                && is_finalized
                && id.resource.kind != "Pod"
            {
                let answer = object.clone();
                self.objects.remove(id);
                self.record(id, Some(live), &mut object, true);
                // Return the object with its last version before the deletion.
                return Arc::new(answer.into());
            }
        }
        let after = self.record(id, live, &mut object, false);
        self.objects.insert(id, &after);
        after
    }

    fn record(
        &mut self,
        id: &Id,
        before: Option<&Arc<Object>>,
        object: &mut Value,
        deleted: bool,
    ) -> Arc<Object> {
        self.version = self.version.max(1) + 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let after = Arc::new(Object::from(object.take()));
        self.changes.push(Change {
            version: self.version,
            id: id.clone(),
            before: before.cloned(),
            after: Arc::clone(&after),
            deleted,
        });
        // Nobody watches leases, and they change all the time.
        if id.resource != &resources::LEASES && !self.is_silent {
            let wakers = self
                .wakers
                .iter()
                .filter(|(resource, _)| resource.is_none_or(|it| it == id.resource));
            wakers.for_each(|(_, waker)| waker.notify_one());
        }
        after
    }
}

/// The owner references of an object.
pub fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten()
}
