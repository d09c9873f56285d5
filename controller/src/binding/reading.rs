//! Reads a target, its dependents and its owners, and resolves it with the kind's resolver (RES-1, RES-2).

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::names::{annotation, is_our_manager, manager};
use asya_shared::resolve::{
    GroupKind, ObjectRef, Related, Resolution, Resolver, RolloutMethod, Target, controller_of,
    resolver,
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

use super::kinds::Kind;
use super::targets::{CacheLookup, ForbiddenKind};
use super::{
    Bindings, KindAvailability, ObjectId, OurTemplateFields, TargetSnapshot, TargetState, spec,
};
use crate::record::{Key, applied_by};

/// Concurrent reads for one target.
const READ_CONCURRENCY: usize = 4;
/// Maximum number of owners to follow above a target (RES-4).
const MAX_OWNER_DEPTH: usize = 4;

impl Bindings {
    /// Reads and resolves a target. Calls the API server only if a watch has observed a change since the last read.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn read_target(
        &self,
        client: &Client,
        target: &ObjectId,
    ) -> Result<TargetState, kube::Error> {
        let resource = match self.kinds.availability(&target.kind) {
            KindAvailability::Served(resource) => resource,
            KindAvailability::Unknown => return Ok(TargetState::NotSynced),
            other => return Ok(TargetState::KindUnavailable(other)),
        };
        let GroupKind { group, kind } = target.kind.group_kind();
        let kind_resolver = resolver(group, kind);
        if !self.dependents_synced(kind_resolver, target) {
            return Ok(TargetState::NotSynced);
        }
        let revision = match self.targets.lookup(target) {
            CacheLookup::Hit(state) => return Ok(state),
            CacheLookup::Miss(revision) => revision,
        };
        let mut versions = HashMap::new();
        let existing = match get(client, &resource, &target.key).await {
            Ok(existing) => existing,
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                self.kinds.rediscover(&target.kind);
                return Ok(TargetState::NotSynced);
            }
            Err(error) => return Err(error),
        };
        let state = match existing {
            None => TargetState::NotFound,
            Some(existing) => {
                versions.insert(target.clone(), version_of(&existing));
                let Some(uid) = uid_of(&existing) else {
                    return Ok(TargetState::NotFound);
                };
                // Record the uid before reading dependents, so that no change of them goes unnoticed.
                for actor in self.index.actors_of(target) {
                    self.index.record_target_uid(&actor, &uid);
                }
                let mut related = self.read_dependents(client, kind_resolver, &uid).await?;
                // Owners are followed only from a target that is a workload itself.
                if kind_resolver.related().is_empty() {
                    let owners = self.read_owners(client, target, &existing, &mut versions);
                    let Some(owners) = owners.await? else {
                        return Ok(TargetState::NotSynced);
                    };
                    related.owners = owners;
                }
                let snapshot = self.snapshot(kind_resolver, uid, &existing, &related);
                TargetState::Present(Arc::new(snapshot))
            }
        };
        self.targets
            .insert(target, revision, state.clone(), versions);
        Ok(state)
    }

    /// Reads an object from the API server; `None` if it does not exist, or if its kind is not served or not readable.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn read_object(
        &self,
        client: &Client,
        namespace: &str,
        object: &ObjectRef,
    ) -> Result<Option<Value>, kube::Error> {
        let Some(resource) = self.resource_of(object) else {
            return Ok(None);
        };
        get(client, &resource, &Key::new(namespace, &object.name)).await
    }

    /// API resource of an object whose kind has been discovered.
    pub fn resource_of(&self, object: &ObjectRef) -> Option<Arc<ApiResource>> {
        match self.kinds.availability(&Kind::from(object.group_kind())) {
            KindAvailability::Served(resource) => Some(resource),
            _ => None,
        }
    }

    /// Whether the watches of the target's dependents have synced, where such watches can run.
    fn dependents_synced(&self, kind_resolver: &dyn Resolver, target: &ObjectId) -> bool {
        kind_resolver.related().iter().all(|kind| {
            let kind = Kind::from(*kind);
            match self.kinds.availability(&kind) {
                KindAvailability::Unknown => false,
                KindAvailability::Served(_) => self.tree.is_synced(&kind, &target.key.namespace),
                KindAvailability::NotInstalled
                | KindAvailability::NotNamespaced
                | KindAvailability::Forbidden(_) => true,
            }
        })
    }

    fn forbidden_kind(&self, kind_resolver: &dyn Resolver) -> Option<ForbiddenKind> {
        let mut kinds = kind_resolver.related().iter().map(|kind| Kind::from(*kind));
        kinds.find_map(|kind| match self.kinds.availability(&kind) {
            KindAvailability::Forbidden(missing_rule) => Some(ForbiddenKind { kind, missing_rule }),
            _ => None,
        })
    }

    fn snapshot(
        &self,
        kind_resolver: &dyn Resolver,
        uid: Box<str>,
        existing: &Value,
        related: &Related,
    ) -> TargetSnapshot {
        let snapshot = TargetSnapshot {
            replicas: None,
            forbidden_kind: self.forbidden_kind(kind_resolver),
            resolution: kind_resolver.resolve(existing, related),
            uid,
            spec_hash: spec::hash(existing),
            our_template_fields: None,
        };
        snapshot.with_workloads(existing, related)
    }

    /// Reads the objects that the target with this uid owns, of the kinds that its resolver needs.
    async fn read_dependents(
        &self,
        client: &Client,
        kind_resolver: &dyn Resolver,
        uid: &str,
    ) -> Result<Related, kube::Error> {
        let mut related = Related::default();
        let kinds: Vec<_> = kind_resolver
            .related()
            .iter()
            .map(|kind| Kind::from(*kind))
            .collect();
        let descendants = self.tree.descendants(uid, &kinds).into_iter();
        let served = descendants.filter_map(|object| match self.kinds.availability(&object.kind) {
            KindAvailability::Served(resource) => Some((object, resource)),
            _ => None,
        });
        let read = stream::iter(served).map(|(object, resource)| async move {
            let body = get(client, &resource, &object.key).await?;
            Ok::<_, kube::Error>((object.kind, body))
        });
        let bodies: Vec<_> = read.buffered(READ_CONCURRENCY).try_collect().await?;
        for (kind, body) in bodies {
            let related_kind = kind_resolver
                .related()
                .iter()
                .find(|related| **related == kind.group_kind());
            if let (Some(kind), Some(body)) = (related_kind, body) {
                related.objects.entry(*kind).or_default().push(body);
            }
        }
        Ok(related)
    }

    /// Reads the owners of a target, from the nearest one up; `None` while the kind of one has not been discovered yet.
    async fn read_owners(
        &self,
        client: &Client,
        target: &ObjectId,
        existing: &Value,
        versions: &mut HashMap<ObjectId, u64>,
    ) -> Result<Option<Vec<Value>>, kube::Error> {
        let mut bodies = Vec::new();
        let mut owners = Vec::new();
        let mut next = controller_of(existing);
        while let Some(owner) = next.take().filter(|_| owners.len() < MAX_OWNER_DEPTH) {
            let kind = Kind::from(owner.group_kind());
            self.kinds.track(&kind);
            let resource = match self.kinds.availability(&kind) {
                KindAvailability::Unknown => {
                    owners.push(object_of(&owner, target));
                    self.index.set_owners(target, &owners);
                    return Ok(None);
                }
                KindAvailability::Served(resource) => resource,
                _ => break,
            };
            let object = object_of(&owner, target);
            owners.push(object.clone());
            self.index.set_owners(target, &owners);
            let body = match get(client, &resource, &object.key).await {
                Err(kube::Error::Api(status)) if status.is_forbidden() => None,
                body => body?,
            };
            let Some(body) = body.filter(|body| uid_of(body).as_deref() == owner.uid.as_deref())
            else {
                break;
            };
            versions.insert(object, version_of(&body));
            next = controller_of(&body);
            bodies.push(body);
        }
        self.index.set_owners(target, &owners);
        Ok(Some(bodies))
    }
}

impl TargetSnapshot {
    /// Adds the state of the target's workloads: the desired replicas, of its one workload or summed over all that it
    /// groups, and the fields that an actor owns in a pod template, whichever target that actor binds.
    fn with_workloads(mut self, existing: &Value, related: &Related) -> Self {
        let Resolution::Found(target) = &self.resolution else {
            return self;
        };
        let all = || related.objects.values().flatten().chain([existing]);
        let body = |workload: &ObjectRef| {
            all().find(|object| {
                workload.uid.is_some() && uid_of(object).as_deref() == workload.uid.as_deref()
            })
        };
        let replicas_of =
            |workload: &ObjectRef| body(workload)?.pointer("/spec/replicas")?.as_i64();
        let replicas = match (&target.roll, replicas_equal_pods(target)) {
            (_, true) => replicas_of(&target.workload),
            (RolloutMethod::AnnotateTemplate(workloads), false) => {
                workloads.iter().map(replicas_of).sum()
            }
            (RolloutMethod::Annotate(..) | RolloutMethod::Evict, false) => None,
        };
        let grouped = match &target.roll {
            RolloutMethod::AnnotateTemplate(workloads) => &workloads[..],
            RolloutMethod::Annotate(..) | RolloutMethod::Evict => &[],
        };
        let workloads = [&target.workload].into_iter().chain(grouped);
        self.our_template_fields = workloads.filter_map(body).find_map(our_template_fields);
        self.replicas = replicas.and_then(|replicas| replicas.try_into().ok());
        self
    }
}

/// Whether the workload's replica count equals the number of bound pods.
fn replicas_equal_pods(target: &Target) -> bool {
    let GroupKind { group, kind } = target.workload.group_kind();
    (group == "apps" && kind != "DaemonSet") || kind == "LeaderWorkerSet"
}

/// The pod template fields that the operator owns (BIND-50).
fn our_template_fields(existing: &Value) -> Option<OurTemplateFields> {
    let entries = existing.pointer("/metadata/managedFields")?;
    let entries: Vec<ManagedFieldsEntry> = serde_json::from_value(entries.clone()).ok()?;
    let annotations = existing.pointer("/spec/template/metadata/annotations");
    let actor =
        annotations.and_then(|annotations| annotations.get(annotation::INJECTED_BY)?.as_str());
    Some(OurTemplateFields {
        fingerprint: applied_by(&entries, manager::TEMPLATE)?,
        actor: actor.map(Box::from),
    })
}

fn object_of(owner: &ObjectRef, target: &ObjectId) -> ObjectId {
    ObjectId {
        kind: Kind::from(owner.group_kind()),
        key: Key::new(&target.key.namespace, &owner.name),
    }
}

fn uid_of(object: &Value) -> Option<Box<str>> {
    Some(object.pointer("/metadata/uid")?.as_str()?.into())
}

fn version_of(object: &Value) -> u64 {
    let version = object.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str);
    version
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Reads the object as stored, with only the operator's entries in `managedFields`.
async fn get(
    client: &Client,
    resource: &ApiResource,
    key: &Key,
) -> Result<Option<Value>, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, resource);
    let Some(mut existing) = api.get_opt(&key.name).await? else {
        return Ok(None);
    };
    if let Some(entries) = &mut existing.metadata.managed_fields {
        entries.retain(|entry| entry.manager.as_deref().is_some_and(is_our_manager));
    }
    let existing = serde_json::to_value(existing).map_err(kube::Error::SerdeError)?;
    Ok(Some(existing))
}

#[cfg(test)]
mod tests;
